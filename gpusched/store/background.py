"""Compilation while tasks go on: threads that have made what is asked for."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable

from gpusched.store.handles import Handle
from gpusched.store.service import client as service
from gpusched.store.statistics import updating
from gpusched.store.worthwhile import Budgets

logger = logging.getLogger(__name__)

THREADS = 16
"""Threads at most. They wait for the compile service, which decides what comes first; without one
they compile in turn."""


class Background:
    """Threads that see to it that kernels are compiled, and end when there is nothing left to do.

    Notes
    -----
    Thread-safe. The threads do not keep the process from ending.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._lock = threading.Condition()
        self._wanted: dict[Handle, float] = {}
        self._pending: dict[Handle, None] = {}
        self._budgets = Budgets()
        self._threads = 0
        self._refused = False

    def request(self, handles: Iterable[Handle], gain: float, urgent: bool = True) -> None:
        """Have kernels compiled.

        Parameters
        ----------
        handles
            The kernels. Those that have been asked for before are compiled sooner.
        gain
            Seconds that are expected to be saved by them: the more, the sooner their turn.
        urgent
            Whether that is worth taking time from tasks.
        """
        with self._lock:
            for handle in handles:
                if handle.requested and handle not in self._wanted and urgent:
                    service.urge(handle.name, gain)
                elif not handle.requested:
                    self._wanted[handle] = gain
                    self._pending[handle] = None
                    with updating() as counters:
                        counters.kernels_requested[handle.name] += 1
                    self._start()
                handle.requested = True
                handle.urgent |= urgent

    def considered(
        self, handles: Iterable[Handle], starting: float, graph: str = ""
    ) -> list[Handle]:
        """Return what has become worth the time that nothing else uses, with these kernels.

        Parameters
        ----------
        handles
            What a plan lacks that has just run without.
        starting, graph
            As of `gpusched.store.worthwhile.Budgets`.
        """
        with self._lock:
            self._budgets.note(handles, graph)
            return self._budgets.affordable(starting)

    def consider(self, handles: Iterable[Handle], starting: float, graph: str = "") -> None:
        """Have kernels compiled in idle time if that pays, as `considered` has it."""
        if worth := self.considered(handles, starting, graph):
            self.request(worth, 0.0, urgent=False)

    def _start(self) -> None:
        if self._threads >= THREADS or self._refused:
            return
        thread = threading.Thread(target=self._run, name="gpusched-compile", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                self._refused = True
                logger.warning("kernels are not compiled, as there are no threads: %s", error)
            return
        self._threads += 1

    def _next(self) -> tuple[Handle, float] | None:
        with self._lock:
            if not self._wanted:
                self._threads -= 1
                self._lock.notify_all()
                return None
            most = max(self._wanted, key=self._wanted.__getitem__)
            return most, self._wanted.pop(most)

    def _run(self) -> None:
        while (found := self._next()) is not None:
            handle, gain = found
            try:
                with service.wishing(gain, handle.urgent):
                    handle.wait()
            except Exception as error:
                # Whoever runs the plan says so: a failed kernel is a reason not to fuse.
                logger.debug("kernel %s cannot be compiled", handle.name, exc_info=True)
                handle.error = error
            finally:
                with self._lock:
                    self._pending.pop(handle, None)

    def pending(self) -> list[Handle]:
        """Return the kernels that have been asked for, and are not compiled yet."""
        with self._lock:
            return list(self._pending)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all is compiled that has been asked for; return whether it is."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._threads, timeout)

    def begin_again(self) -> None:
        """Start with nothing, in a process that has been forked off and has none of the threads."""
        for handle in self._pending:
            handle.requested = handle.urgent = False
        self._clear()


process = Background()
"""This process's."""
request, consider, pending, join = (
    process.request, process.consider, process.pending, process.join,
)  # fmt: skip

os.register_at_fork(after_in_child=process.begin_again)
