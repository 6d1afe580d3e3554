"""Page-locked buffers of one block each, through which bytes pass between a GPU and the host.

Copies from and to other host memory run at half the speed or less, and page-locking whole results
would take as much memory again that nothing else can use. A buffer may come back while the GPU
still copies from it: the next one is filled meanwhile, and whoever takes this one waits.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusched import forks
from gpusched.serialization.codec import blocks


@dataclass(eq=False)
class Buffer:
    """Page-locked memory, and what still reads it."""

    memory: np.ndarray
    """Shape ``(nbytes,)``, dtype uint8."""
    copied: Any = None
    """CuPy's event after the last copy from it; None if that has been waited for."""

    def is_idle(self) -> bool:
        """Return whether nothing reads the memory any more."""
        return self.copied is None or bool(self.copied.done)

    def wait(self) -> None:
        """Return when nothing reads the memory any more."""
        if self.copied is not None:
            self.copied.synchronize()
            self.copied = None


class Staging:
    """A pool of buffers, made as they are first needed.

    Notes
    -----
    Thread-safe. A thread that holds a buffer must not ask for another.
    """

    def __init__(self, most: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.made = 0
        """Buffers; none is given back before the process ends."""
        self._most = most
        self._free: deque[Buffer] = deque()
        """The one that was given back first is the first."""
        self._lent = threading.BoundedSemaphore(most)
        self._lock = forks.lock()

    @contextmanager
    def lend(self) -> Iterator[Buffer]:
        """Give a buffer, whose memory nothing reads, for the time of a block."""
        with self._lent:
            buffer = self._idle() or self._made() or self._oldest()
            try:
                buffer.wait()
                yield buffer
            finally:
                self._free.append(buffer)

    def _idle(self) -> Buffer | None:
        with self._lock:
            for buffer in list(self._free):
                if buffer.is_idle():
                    self._free.remove(buffer)
                    return buffer
        return None

    def _made(self) -> Buffer | None:
        """Return a new buffer, or None if there are as many as there may be."""
        with self._lock:
            if self.made == self._most:
                return None
            self.made += 1
        try:
            return Buffer(_page_locked(self.nbytes))
        except BaseException:
            with self._lock:
                self.made -= 1
            raise

    def _oldest(self) -> Buffer:
        # There is one: whoever has been let in has a buffer to take.
        return self._free.popleft()


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
