"""When this process runs nothing without its kernels: the time to start a compiler that can wait.

A compile service takes as much of the processor before its first kernel as a short computation
takes in all, and takes it from tasks even where it has the lowest priority.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from time import monotonic

MOMENT = 0.2
"""Seconds after a task without its kernels in which the next one of the same computation begins."""


class Running:
    """Whether tasks run without their kernels: each begins, and ends.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks = 0
        self._ended = -math.inf

    def begin(self) -> None:
        """Note that one begins."""
        with self._changed:
            self._tasks += 1

    def end(self) -> None:
        """Note that one has ended."""
        with self._changed:
            self._tasks -= 1
            self._ended = monotonic()

    def wait_for_end(self, unless: Callable[[], bool]) -> None:
        """Return when none has run for a moment.

        Parameters
        ----------
        unless
            Returns whether it is to return before that; asked once in a moment.

        Examples
        --------
        >>> from gpusched.store.uncompiled import Running
        >>> running = Running()
        >>> running.begin()
        >>> running.wait_for_end(unless=lambda: True)
        >>> running.end()
        >>> running.wait_for_end(unless=lambda: False)
        """
        with self._changed:
            while not unless():
                left = MOMENT if self._tasks else MOMENT - (monotonic() - self._ended)
                if left <= 0:
                    return
                self._changed.wait(left)


running = Running()
"""Of this process."""


def _begin_again() -> None:
    """Forget the threads of the process that this one has been forked off."""
    global running
    running = Running()


os.register_at_fork(after_in_child=_begin_again)
