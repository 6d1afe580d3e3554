"""Page-locked host memory for what is copied from the GPU: given back, and not rounded up far.

CuPy's own pool takes powers of two and gives nothing back by itself, so that 5 GB of spilled
results would lock 8 GB for as long as the process lives.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import Any

import cupy
import numpy as np

KEPT = 256 << 20
"""Bytes that are kept for the next results; locking pages takes longer than filling them."""
_SMALLEST = 64 << 10
_STEPS = 16
"""Sizes between two powers of two: at most a sixteenth is lost by rounding up."""


class PageLockedMemory:
    """Lends page-locked memory.

    Notes
    -----
    Thread-safe without a lock, since the garbage collector may return memory at any point, also in
    the middle of `take`: each step is one operation on a deque.
    """

    def __init__(self) -> None:
        self._free: deque[tuple[int, int]] = deque()
        """Size and address of what is kept."""

    def take(self, nbytes: int) -> np.ndarray:
        """Return so many bytes, which come back when nobody refers to them."""
        size = rounded(nbytes)
        address = self._kept_address(size)
        if address is None:
            address = int(cupy.cuda.runtime.hostAlloc(size, 0))
        memory: Any = (ctypes.c_uint8 * size).from_address(address)
        # The driver takes it back itself when the process ends.
        weakref.finalize(memory, self._give, size, address).atexit = False
        return np.frombuffer(memory, np.uint8, nbytes)

    def held(self) -> int:
        """Return the bytes that are kept."""
        return sum(size for size, _ in list(self._free))

    def free_unused(self) -> int:
        """Give what is kept back to the system; return its bytes."""
        freed = 0
        while self._free:
            try:
                size, address = self._free.popleft()
            except IndexError:  # Another thread has taken the last one.
                break
            cupy.cuda.runtime.freeHost(address)
            freed += size
        return freed

    def _kept_address(self, size: int) -> int | None:
        for entry in list(self._free):
            if entry[0] == size:
                try:
                    self._free.remove(entry)
                except ValueError:
                    continue  # Another thread has taken it.
                return entry[1]
        return None

    def _give(self, size: int, address: int) -> None:
        if self.held() + size <= KEPT:
            self._free.append((size, address))
        else:
            cupy.cuda.runtime.freeHost(address)


def rounded(nbytes: int) -> int:
    """Return the size that is taken for so many bytes: equal ones can take each other's place.

    Examples
    --------
    >>> from gpusched.workers.device.page_locked import rounded       # doctest: +SKIP
    >>> rounded(1), rounded(5_000_000), rounded(1 << 30) == 1 << 30   # doctest: +SKIP
    (65536, 5242880, True)
    """
    step = max(_SMALLEST, (1 << max(nbytes - 1, 1).bit_length()) // (2 * _STEPS))
    return max(1, -(-nbytes // step)) * step
