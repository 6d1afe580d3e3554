"""Chunk buffers that are used again: fresh pages cost more than a fused kernel does."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import Any

import dask
import numpy as np
from dask.utils import parse_bytes

SMALLEST = 1 << 18
"""Bytes below which the C library's own allocator is as good."""

GRANULE = 1 << 16
"""Buffer lengths are rounded up to this many bytes, so that unequal chunks share them."""


class _Lease:
    """Lends a buffer to one array and its views; the last of them gives it back."""

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_pool")

    def __init__(self, pool: BufferPool, block: np.ndarray, shape: tuple[int, ...],
                 dtype: np.dtype) -> None:  # fmt: skip
        self._pool = pool
        self._block = block
        address = block.__array_interface__["data"]
        self.__array_interface__: dict[str, Any] = {
            "shape": shape, "typestr": dtype.str, "data": address, "version": 3,
        }  # fmt: skip

    def __del__(self) -> None:
        self._pool._returned(self._block)


class BufferPool:
    """A bounded store of free buffers.

    Parameters
    ----------
    limit
        Bytes of free buffers kept at most; more are given back to the system.

    Notes
    -----
    Thread-safe without a lock: every step is one operation on a deque, so that a buffer may come
    back from the garbage collector at any point, also in the middle of `empty`.

    Examples
    --------
    >>> pool = BufferPool(limit=2**20)
    >>> address = pool.empty((2**17,), np.dtype("f4")).ctypes.data
    >>> pool.empty((2**16,), np.dtype("f8")).ctypes.data == address
    True
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free: defaultdict[int, deque[np.ndarray]] = defaultdict(deque)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an uninitialised C-ordered array, in a used buffer where there is one."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALLEST or nbytes > self.limit:
            return np.empty(shape, dtype)
        size = -(-nbytes // GRANULE) * GRANULE
        try:
            block = self._free[size].pop()
        except IndexError:
            block = np.empty(size, np.uint8)
        return np.asarray(_Lease(self, block, shape, dtype))

    def held(self) -> int:
        """Return the bytes in free buffers."""
        return sum(size * len(blocks) for size, blocks in list(self._free.items()))

    def clear(self) -> None:
        """Give every free buffer back to the system."""
        for blocks in list(self._free.values()):
            blocks.clear()

    def _returned(self, block: np.ndarray) -> None:
        if self.held() + block.nbytes <= self.limit:
            self._free[block.nbytes].append(block)


pool = BufferPool(parse_bytes(dask.config.get("gpusched.memory.pool-limit", "512 MiB")))
"""This process's pool."""
