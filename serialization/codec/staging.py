"""Page-locked buffers of one block each, through which bytes pass between a GPU and the host.

Copies from and to other host memory run at half the speed or less, and page-locking whole results
would take as much memory again that nothing else can use.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpusched.serialization.codec import blocks


class Staging:
    """A pool of buffers, made as they are first needed.

    Parameters
    ----------
    most
        How many; whoever asks for one more waits.
    nbytes
        Of each.

    Notes
    -----
    Thread-safe. A thread that holds a buffer must not ask for another.
    """

    def __init__(self, most: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.made = 0
        """Buffers; none is given back before the process ends."""
        self._free: list[np.ndarray] = []
        self._lent = threading.BoundedSemaphore(most)

    @contextmanager
    def lend(self) -> Iterator[np.ndarray]:
        """Give a buffer of shape ``(nbytes,)`` and dtype uint8 for the time of a block."""
        with self._lent:
            try:
                buffer = self._free.pop()
            except IndexError:
                buffer = _page_locked(self.nbytes)
                self.made += 1
            try:
                yield buffer
            finally:
                self._free.append(buffer)


def staging() -> Staging:
    """Return this process's pool: a buffer for each thread that compresses, and two more."""
    return _of(os.getpid(), blocks.BLOCK)


@functools.cache
def _of(process: int, nbytes: int) -> Staging:
    return Staging(blocks.threads() + 2, nbytes)


def _page_locked(nbytes: int) -> np.ndarray:
    import cupy

    memory: Any = cupy.cuda.alloc_pinned_memory(nbytes)
    return np.frombuffer(memory, np.uint8, nbytes)
