"""Named locks of a process: re-entrant, without deadlocks, taken from threads that have ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from gpusched.threadsafe import proxy_operations, waits
from gpusched.threadsafe.guards import Guard
from gpusched.threadsafe.handle_classes import Package
from gpusched.threadsafe.policies import Policy
from gpusched.threadsafe.proxy_operations import Operation
from gpusched.threadsafe.threads import Thread, _local

logger = logging.getLogger(__name__)


class LockGuard(Guard):
    """A re-entrant lock.

    Notes
    -----
    Thread-safe. ``_owner`` is only set by a thread that holds ``_lock``, and cleared before that
    is released; so a thread sees itself there if, and only if, it is the owner.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._lock = threading.Lock()
        self._owner: Thread | None = None
        self._depth = 0
        self.joined: Any = None
        """A library's own lock, always taken after this one."""

    def acquire(self) -> None:
        """Wait until no other thread holds the lock, and take it."""
        me = _local.record
        if self._owner is me:
            self._depth += 1
            return
        if not self._lock.acquire(False):
            self._wait(me)
        self._owner = me
        self.counts.calls += 1
        if self.joined is not None:
            self.joined.acquire()

    def release(self) -> None:
        """Give the lock back, if this thread has not taken it more often than given back.

        Raises `RuntimeError` if this thread does not hold it.
        """
        if self._owner is not _local.record:
            raise RuntimeError(f"{self} is released by a thread that does not hold it")
        if self._depth:
            self._depth -= 1
            return
        if self.joined is not None:
            self.joined.release()
        self._owner = None
        self._lock.release()
        # After the release: what goes while the lock is held is either seen here, or finds it free.
        if self.unreferenced:
            self.delete()

    def delete(self) -> None:
        """Delete handles that nobody refers to any more, unless another thread is inside."""
        me = getattr(_local, "record", None)
        # Called while this thread's record is made, it leaves them to the next call.
        while self.unreferenced and me is not None:
            if self._owner is me:
                self.unreferenced.delete()
                return
            if not self._lock.acquire(False):
                return
            if self.joined is not None and not self.joined.acquire(False):
                self._lock.release()
                return
            self._owner = me
            try:
                self.unreferenced.delete()
            finally:
                self._owner = None
                if self.joined is not None:
                    self.joined.release()
                self._lock.release()

    def forget_others(self) -> None:
        """Start again in a forked process, still joined with the same lock."""
        joined = self.joined
        super().forget_others()
        self.joined = joined

    def _wait(self, me: Thread) -> None:
        with waits.waiting(self, lambda: self._owner is me) as look:
            while not self._lock.acquire(timeout=waits.INTERVAL):
                owner = self._owner
                if owner is not None and not owner.lives() and self._take_over(owner, me):
                    return
                look()

    def _take_over(self, gone: Thread, me: Thread) -> bool:
        # Of several threads that wait, one gets it; _lock stays locked for it.
        with waits.mutex():
            if self._owner is not gone:
                return False
            self._owner = me
            self._depth = 0
            self.counts.abandoned += 1
        logger.warning("%s was still held by %s, which has ended; %s has it now", self, gone, me)
        return True

    def apply(self, target: Any, operation: Operation, *args: Any) -> Any:
        """Carry out an operation while this thread holds the lock."""
        self.acquire()
        try:
            return operation(target, *args)
        finally:
            self.release()

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], package: Package
    ) -> Any:
        """Call the object while this thread holds the lock."""
        if self.joined is not None:
            return self.apply(target, proxy_operations.call, args, kwargs)
        # The same as acquire and release, written out: this is the path that is measured.
        me = _local.record
        if self._owner is me:
            return target(*args, **kwargs)
        if not self._lock.acquire(False):
            self._wait(me)
        self._owner = me
        self.counts.calls += 1
        try:
            return target(*args, **kwargs)
        finally:
            if self._owner is me:
                if self._depth:
                    self._depth -= 1
                else:
                    if self.unreferenced:
                        self.unreferenced.delete()
                    self._owner = None
                    self._lock.release()
                    if self.unreferenced:
                        self.delete()

    def holders(self) -> Iterable[Thread]:
        """Return the thread that holds the lock, if one does."""
        owner = self._owner
        return () if owner is None else (owner,)

    def give_up(self, thread: Thread) -> bool:
        """Release the lock of a thread that has ended; return whether it held it."""
        if self._owner is not thread:
            return False
        self._depth = 0
        self.counts.abandoned += 1
        if self.joined is not None:
            self.joined.release()
        self._owner = None
        self._lock.release()
        return True
