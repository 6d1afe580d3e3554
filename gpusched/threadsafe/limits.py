"""At most so many threads at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from gpusched.threadsafe import waits
from gpusched.threadsafe.guards import Guard
from gpusched.threadsafe.policies import Limit
from gpusched.threadsafe.proxy_operations import Operation
from gpusched.threadsafe.threads import Thread, current

logger = logging.getLogger(__name__)


class LimitGuard(Guard):
    """Lets ``n`` threads in, each as often as it wants.

    Notes
    -----
    Thread-safe. ``_inside`` never has more than ``n`` threads.
    """

    policy: Limit

    def __init__(self, policy: Limit) -> None:
        super().__init__(policy)
        self._changed = threading.Condition(threading.Lock())
        self._inside: dict[Thread, int] = {}

    def acquire(self) -> None:
        """Wait until there is room for this thread, and take it."""
        me = current()
        if not self._enter(me):
            with waits.waiting(self, lambda: me in self._inside) as look:
                while not self._enter(me, waits.INTERVAL):
                    look()

    def _enter(self, me: Thread, patience: float = 0) -> bool:
        with self._changed:
            if patience and not self._has_room(me):
                self._changed.wait(patience)
                self._drop_ended()
            if not self._has_room(me):
                return False
            self.counts.calls += me not in self._inside
            self._inside[me] = self._inside.get(me, 0) + 1
            return True

    def _has_room(self, me: Thread) -> bool:
        return me in self._inside or len(self._inside) < self.policy.n

    def _drop_ended(self) -> None:
        for thread in [thread for thread in self._inside if not thread.lives()]:
            del self._inside[thread]
            self.counts.abandoned += 1
            logger.warning("%s was still held by %s, which has ended", self, thread)

    def release(self) -> None:
        """Give this thread's place back, if it has not entered more often than left.

        Raises `RuntimeError` if it has no place.
        """
        me = current()
        with self._changed:
            if me not in self._inside:
                raise RuntimeError(f"{self} is released by a thread that does not hold it")
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                self._changed.notify()

    def apply(self, target: Any, operation: Operation, *args: Any) -> Any:
        """Carry out an operation as soon as fewer than ``n`` other threads are inside."""
        self.acquire()
        try:
            return operation(target, *args)
        finally:
            self.release()

    def holders(self) -> Iterable[Thread]:
        """Return the threads that are inside, if no other may enter."""
        # Not under the condition's lock, which `waits` must not wait for; a copy is made at once.
        inside = tuple(self._inside)
        return inside if len(inside) >= self.policy.n else ()

    def give_up(self, thread: Thread) -> bool:
        """Take out a thread that has ended; return whether it was inside."""
        with self._changed:
            if self._inside.pop(thread, 0) == 0:
                return False
            self.counts.abandoned += 1
            self._changed.notify()
            return True
