"""What the tests call models on."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

ROWS, FEATURES = 100, 8


def values(dtype: str = "float32", *more: int) -> np.ndarray:
    shape = (ROWS, *(more or (FEATURES,)))
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)


def rows(dtype: str = "float32", *more: int, chunk: int = 30) -> da.Array:
    """Return those values as a dask array: three whole chunks and a shorter one."""
    return da.from_array(values(dtype, *more), chunks=(chunk, *[-1] * max(len(more), 1)))


def watched(read_only: bool = False, aligned: int = 1) -> tuple[da.Array, list[np.ndarray]]:
    """Return those values in one chunk, and where the chunk is put as it is made."""
    made: list[np.ndarray] = []

    def note(block: np.ndarray) -> np.ndarray:
        memory = np.empty(block.nbytes + aligned, "uint8")
        start = -memory.ctypes.data % aligned
        chunk = memory[start : start + block.nbytes].view(block.dtype).reshape(block.shape)
        chunk[...] = block
        chunk.flags.writeable = not read_only
        made.append(chunk)
        return chunk

    meta = np.empty((0, 0), "float32")
    return rows(chunk=ROWS).map_blocks(note, meta=meta), made


def only_chunk(array: da.Array) -> Any:
    """Return the chunk of an array as its task gave it; `compute` would return a copy."""
    (found,) = array.persist(scheduler="synchronous").dask.values()
    return getattr(found, "value", found)


def address(array: Any) -> int:
    """Return where a NumPy array's first element lies."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer
