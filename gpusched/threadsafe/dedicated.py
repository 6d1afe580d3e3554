"""Every call on one thread that does nothing else."""

from __future__ import annotations

import contextvars
import threading
import time
import weakref
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any

from gpusched import events
from gpusched.threadsafe import waits
from gpusched.threadsafe.counts import Counts
from gpusched.threadsafe.guards import Guard, Made, is_maker
from gpusched.threadsafe.handle_classes import Package
from gpusched.threadsafe.policies import Policy
from gpusched.threadsafe.proxy_operations import Operation, call
from gpusched.threadsafe.threads import Thread, _local, current
from gpusched.threadsafe.unreferenced_handles import Unreferenced

_JOIN = 5.0
"""Seconds given to a thread to end what it does."""


class _Call:
    """An operation on its way to the thread and its outcome on its way back."""

    __slots__ = ("abandoned", "args", "begun", "context", "done", "error", "operation", "over",
                 "result", "sent", "task")  # fmt: skip

    def __init__(self, operation: Operation, args: tuple[Any, ...], sent: float) -> None:
        self.operation = operation
        self.args = args
        self.sent = sent
        """When, if the thread was busy; else 0."""
        self.begun = sent
        self.context = contextvars.copy_context()
        self.task = current().task
        self.abandoned = False
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class _Line:
    """The calls for one thread. Knows nothing of the guard, whose end is the thread's."""

    def __init__(self, counts: Counts, unreferenced: Unreferenced) -> None:
        self.unreferenced = unreferenced
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.counts = counts
        self.busy = False
        self.record: Thread | None = None
        self.started = threading.Event()

    def work(self) -> None:
        self.record = current()
        self.started.set()
        while (call := self.calls.get()) is not None:
            self.busy = True
            self.carry_out(call)
            # Held here, the last result would stay in memory until the next call; and what is in a
            # cycle with it would be left for another thread to collect.
            del call
            self.unreferenced.delete()
            self.busy = False

    def carry_out(self, call: _Call) -> None:
        if call.abandoned:
            return
        if call.sent:
            call.begun = time.monotonic()
            self.counts.waited(call.begun - call.sent)
        self.counts.calls += call.operation is not _nothing
        _local.record.task = call.task
        try:
            call.result = call.context.run(call.operation, *call.args)
        except BaseException as error:  # noqa: BLE001
            # Of any kind: it is raised in the thread that called.
            call.error = error
        finally:
            call.over = True
            call.done.release()


def _nothing() -> None:
    """Have the thread look what is gone."""


class OneThreadGuard(Guard):
    """Carries operations out on a thread of its own, started by the first.

    Notes
    -----
    Thread-safe. Operations start in the order in which they come. Context variables are the
    caller's. What the thread itself calls is carried out at once.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._starting = threading.Lock()
        self._line: _Line | None = None
        self._thread: threading.Thread | None = None

    def apply(self, target: Any, operation: Operation, *args: Any) -> Any:
        """Carry out an operation on the guard's thread, and wait for its result."""
        line = self._line or self._start()
        me = _local.record
        if line.record is me:
            return operation(target, *args)
        if me.answers_loop:
            waits.refuse_loop(self, me)
        call = _Call(operation, (target, *args), time.monotonic() if line.busy else 0.0)
        holder = str(line.record) if call.sent and events.active else ""
        line.calls.put(call)
        try:
            if not call.done.acquire(timeout=waits.INTERVAL):
                self._wait(call)
        except BaseException:
            # Cancelled, interrupted or refused: nobody wants its result any more.
            call.abandoned = True
            raise
        if call.sent:
            waits.note(self, holder, call.sent, call.begun)
        if call.error is not None:
            try:
                raise call.error
            finally:
                # The traceback holds this frame, which would hold the error.
                del call
        return call.result

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], package: Package
    ) -> Any:
        """Call the object; with ``each``, what makes a handle gets a thread for that handle."""
        if not getattr(self.policy, "each", False) or not is_maker(target):
            return self.apply(target, call, args, kwargs)
        # A handle is made in the thread that it is going to be used in.
        guard = self.of_handle()
        value = guard.apply(target, call, args, kwargs)
        return Made(value, guard) if package.is_handle(value) else value

    def delete(self) -> None:
        """Have the guard's thread delete handles that nobody refers to any more."""
        line, me = self._line, getattr(_local, "record", None)
        if me is None:
            # Called while this thread's record is made. The next call deletes them.
            return
        if line is None or line.record is me:
            self.unreferenced.delete()
        elif self.unreferenced:
            # Nobody waits for it; to put something into this queue is safe at any moment.
            line.calls.put(_Call(_nothing, (), 0.0))

    def _wait(self, call: _Call) -> None:
        with waits.waiting(self, lambda: call.over, count=False) as look:
            while not call.done.acquire(timeout=waits.INTERVAL):
                look()

    def _start(self) -> _Line:
        with self._starting:
            if self._line is None:
                line = _Line(self.counts, self.unreferenced)
                # A daemon, since a process must be able to end while a library is stuck. `close`
                # at the process's end joins it.
                self._thread = threading.Thread(
                    target=line.work, name=f"gpusched {self.policy}", daemon=True
                )
                self._thread.start()
                _threads.add(self._thread)
                line.started.wait()
                weakref.finalize(self, line.calls.put, None).atexit = False
                self._line = line
            return self._line

    def holders(self) -> Iterable[Thread]:
        """Return the guard's thread, if it has been started."""
        line = self._line
        return () if line is None or line.record is None else (line.record,)

    def close(self) -> None:
        """Have the thread end after the calls that it has; see `join`."""
        with self._starting:
            line, self._line, self._thread = self._line, None, None
        if line is not None:
            line.calls.put(None)


_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def join() -> None:
    """Wait for the threads of closed and of forgotten guards to end."""
    for thread in list(_threads):
        if thread is not threading.current_thread():
            thread.join(_JOIN)
