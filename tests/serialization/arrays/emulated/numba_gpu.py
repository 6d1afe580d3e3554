"""Puts arrays that are in host memory in the place of numba's; a plugin for pytest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cupy
import numba.cuda
import numpy as np


class DeviceNDArray:
    """An array that NumPy does not take for one."""

    def __init__(self, shape: Any, strides: Any, dtype: Any, gpu_data: Any = None) -> None:
        pointer = cupy.MemoryPointer(gpu_data, gpu_data.pointer)
        self.values = cupy.ndarray(tuple(shape), np.dtype(dtype), pointer, tuple(strides)).values
        self.gpu_data = gpu_data
        self.shape, self.strides, self.dtype = tuple(shape), tuple(strides), np.dtype(dtype)
        self.nbytes = self.values.nbytes

    def copy_to_host(self) -> np.ndarray:
        return self.values.copy()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__array_interface__, "strides": self.strides, "version": 3}


DeviceNDArray.__module__ = "numba.cuda.cudadrv.devicearray"


def as_cuda_array(value: Any) -> DeviceNDArray:
    """Return an array over another's memory."""
    told = value.__cuda_array_interface__
    kind = np.dtype(told["typestr"])
    strides = told["strides"] or np.empty(told["shape"], kind).strides
    data = SimpleNamespace(owner=value, pointer=told["data"][0])
    return DeviceNDArray(told["shape"], strides, kind, data)


def to_device(array: np.ndarray) -> DeviceNDArray:
    """Return an array with a copy of host memory."""
    return as_cuda_array(cupy.asarray(np.array(array, order="K")))


def device_array(shape: Any, dtype: Any) -> DeviceNDArray:
    """Return an array of any values."""
    return to_device(np.empty(shape, dtype))


numba.cuda.devicearray.DeviceNDArray = DeviceNDArray
numba.cuda.as_cuda_array = as_cuda_array
numba.cuda.to_device = to_device
numba.cuda.device_array = device_array
numba.cuda.is_available = lambda: True
numba.cuda.default_stream = lambda: SimpleNamespace(synchronize=lambda: None)
