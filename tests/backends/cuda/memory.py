"""Test support: memory filled with values that show, and host memory mirrored on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np


def shifted(array: np.ndarray, count: int) -> np.ndarray:
    """Return a copy of a one-dimensional array whose address is `count` elements off alignment."""
    storage = np.empty(array.size + 64, array.dtype)
    start = -storage.ctypes.data // storage.itemsize % (64 // storage.itemsize) + count
    found = storage[start : start + array.size]
    found[:] = array
    return found


def root(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory."""
    base: Any = array
    while base is not None:
        array = base if isinstance(base, np.ndarray) else array
        base = getattr(base, "base", None)  # Views by `as_strided` stand on something between.
    return array


class Mirror:
    """A copy on the GPU of the memory of one array, at the same distance from 16-byte borders."""

    def __init__(self, array: np.ndarray) -> None:
        import cupy

        self._host: Any = np.lib.stride_tricks.as_strided(
            array.reshape(-1, order="A").view(np.uint8), (array.nbytes,), (1,)
        )
        self._offset = array.ctypes.data % 16
        self._device = cupy.empty(array.nbytes + 16, np.uint8)
        self._bytes = self._device[self._offset : self._offset + array.nbytes]
        self._bytes.set(self._host)

    def address(self, array: np.ndarray) -> int:
        """Return where the first element of a view is on the GPU."""
        return int(self._bytes.data.ptr) + array.ctypes.data - self._host.ctypes.data

    def download(self) -> None:
        """Copy everything back."""
        self._host[:] = self._bytes.get()
