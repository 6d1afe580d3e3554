"""Everything in a child process, one call at a time."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
from dask.utils import parse_timedelta

from gpusched import config
from gpusched.threadsafe import pipe_messages, waits
from gpusched.threadsafe.errors import ChildError, TaskCancelledError
from gpusched.threadsafe.guards import Guard
from gpusched.threadsafe.handle_classes import Package
from gpusched.threadsafe.locks import LockGuard
from gpusched.threadsafe.pipe_messages import Apply, Hold, Raised, Reference
from gpusched.threadsafe.policies import Lock, Policy
from gpusched.threadsafe.proxy import is_proxy, target_of
from gpusched.threadsafe.proxy_operations import Operation
from gpusched.threadsafe.proxy_targets import Named
from gpusched.threadsafe.specials import specials
from gpusched.threadsafe.threads import Thread, current


class Remote(Named):
    """An object in the child, or (``content``) one that is sent there when it is first used."""

    __slots__ = ("__weakref__", "content", "number", "package", "started")

    def __init__(self, specials: frozenset[str], kind: tuple[str, str]) -> None:
        super().__init__((specials, kind))
        self.number = 0
        self.started = 0
        """Which child has it, counted from 1."""
        self.content = b""
        self.package: Package | None = None


class ProcessGuard(Guard):
    """Carries operations out in a child process, started by the first.

    Notes
    -----
    Thread-safe: requests and answers alternate under one lock. A call that is cut short, by its
    task's cancellation or an interrupt, ends the child, which would answer it all the same.
    """

    shares = False

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._lock = LockGuard(Lock(policy.name))
        self._lock.counts = self.counts
        self._connection: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: threading.Thread | None = None
        self._started = 0
        self._dropped: deque[tuple[int, int]] = deque()

    def target(self, value: Any) -> Any:
        """Return a target with the pickled object, which the first operation sends to the child."""
        kind = type(value)
        target = Remote(specials(kind), (kind.__module__, kind.__qualname__))
        target.content, target.package = cloudpickle.dumps(value), Package.of(value)
        return target

    def apply(self, target: Remote, operation: Operation, *args: Any) -> Any:
        """Carry out an operation in the child; the target, if that is what it returns."""
        if current().answers_loop:
            waits.refuse_loop(self, current())
        self._lock.acquire()
        try:
            connection = self._connection or self._start()
            self._send_over(connection, target)
            request = Apply(target.number, operation, args, self._take_dropped())
            answer = self._ask(connection, request)
            if answer == target.number and isinstance(answer, int):
                return target
            return self._keep(answer) if isinstance(answer, Reference) else answer[0]
        finally:
            self._lock.release()

    def _send_over(self, connection: Connection, target: Remote) -> None:
        if target.started == self._started:
            return
        if not target.content or target.package is None:
            raise ChildError(f"what was in the child process of {self} went with it: make it again")
        answer = self._ask(connection, Hold(target.content, target.package))
        self._refer(target, answer.number)

    def _keep(self, reference: Reference) -> Remote:
        target = Remote(reference.specials, reference.kind)
        self._refer(target, reference.number)
        return target

    def _refer(self, target: Remote, number: int) -> None:
        target.number, target.started = number, self._started
        # Not told at once: finalizers run anywhere, and this one must not wait.
        drop = weakref.finalize(target, self._dropped.append, (self._started, number))
        drop.atexit = False

    def _take_dropped(self) -> tuple[int, ...]:
        found = [self._dropped.popleft() for _ in range(len(self._dropped))]
        return tuple(number for started, number in found if started == self._started)

    def _ask(self, connection: Connection, request: Any) -> Any:
        content = pipe_messages.dumps(request, self._number)
        me = current()
        try:
            connection.send_bytes(content)
            while not connection.poll(waits.INTERVAL):
                if me.task and waits.is_cancelled(me.task):
                    raise TaskCancelledError(f"task {me.task!r} was cancelled in {self}")
            answer = pipe_messages.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            code = self._kill()
            raise ChildError(f"the child process of {self} ended with exit code {code}") from error
        except BaseException:
            self._kill()
            raise
        if isinstance(answer, Raised):
            raise answer.error
        return answer.value

    def _number(self, value: Any) -> int | None:
        """Return the number of what is in this child, for arguments."""
        target = target_of(value) if is_proxy(value) else None
        if not isinstance(target, Remote) or target.started != self._started:
            return None
        return target.number

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "gpusched.threadsafe.child", str(theirs.fileno())]
            started = threading.Event()

            def run() -> None:
                # The kernel ends the child with the thread that started it, so this one waits.
                try:
                    self._process = subprocess.Popen(
                        command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                    )
                finally:
                    started.set()
                self._process.wait()

            self._ended = threading.Thread(target=run, name=f"gpusched {self}", daemon=True)
            self._ended.start()
            started.wait()
        connection = Connection(ours.detach())
        self._connection = connection
        limit = parse_timedelta(config.get("threadsafe.start-timeout"))
        try:
            connection.send(list(sys.path))
            if not connection.poll(limit) or connection.recv() != "ready":
                raise ChildError(f"the child process of {self} did not start within {limit:g} s")
        except (EOFError, OSError) as error:
            code = self._kill()
            raise ChildError(f"the child process of {self} ended with exit code {code}") from error
        except BaseException:
            self._kill()
            raise
        self._started += 1
        return connection

    def _kill(self) -> int | None:
        connection, process, ended = self._connection, self._process, self._ended
        self._connection = self._process = self._ended = None
        if connection is not None:
            connection.close()
        if process is None or ended is None:
            return None
        # What it has done wrong itself is told; else it has a moment to end by itself.
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            process.kill()
        ended.join()
        return process.returncode

    def holders(self) -> Iterable[Thread]:
        """Return the thread whose call the child is carrying out."""
        return self._lock.holders()

    def give_up(self, thread: Thread) -> bool:
        """Release the lock of a thread that has ended."""
        return self._lock.give_up(thread)

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._kill()

    def forget_others(self) -> None:
        """Leave the child to the parent process; the next call starts one."""
        if self._connection is not None:
            # A copy, which would keep the child from seeing the end of its parent.
            self._connection.close()
        # Counted on, or what the parent's child has would be looked for in one of this process.
        started = self._started
        super().forget_others()
        self._started = started
