"""Sorting by NumPy, in device memory: CuPy's own is Thrust, compiled for NVIDIA's GPUs."""

from __future__ import annotations

import ctypes
import math
from types import ModuleType
from typing import Any

import numpy as np

from . import emulator


def install(thrust: ModuleType) -> None:
    """Exchange the functions of `cupy.cuda.thrust`."""
    thrust.sort = _sort
    thrust.argsort = _argsort
    thrust.lexsort = _lexsort


def _memory(dtype: Any, address: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return device memory as an array, after everything that writes it."""
    dtype = np.dtype(dtype)
    emulator.driver.cuCtxSynchronize()
    buffer = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.frombuffer(buffer, dtype).reshape(shape)


def _sort(dtype: Any, data: int, keys: int, shape: tuple[int, ...]) -> None:
    values = _memory(dtype, data, shape)
    with emulator.opened():
        values[...] = np.sort(values, axis=-1, kind="stable")


def _argsort(dtype: Any, index: int, data: int, keys: int, shape: tuple[int, ...]) -> None:
    values, order = _memory(dtype, data, shape), _memory(np.intp, index, shape)
    with emulator.opened():
        order[...] = np.argsort(values, axis=-1, kind="stable")
        values[...] = np.take_along_axis(values, order, -1)


def _lexsort(dtype: Any, index: int, keys: int, count: int, length: int) -> None:
    order, values = _memory(np.intp, index, (length,)), _memory(dtype, keys, (count, length))
    with emulator.opened():
        order[...] = np.lexsort(values)
