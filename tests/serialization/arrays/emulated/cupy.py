"""CuPy as far as `gpusched.serialization` uses it, with arrays that are in host memory.

`test_emulated` puts this folder on the path of a process of its own.
"""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

__version__ = "14.0.0"

uint8 = np.uint8
dtype = np.dtype


class MemoryPointer:
    """An address, and whom the memory there belongs to."""

    def __init__(self, owner: Any, pointer: int) -> None:
        self.owner = owner
        self.ptr = pointer

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.owner, self.ptr + offset)


class ndarray:
    """An array that NumPy does not take for one."""

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None):
        strides = strides or np.empty(shape, "u1").strides
        if memptr is None:
            self.values = np.empty(shape, dtype)
            return
        low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n and s < 0)
        high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n and s > 0)
        reach = high - low + np.dtype(dtype).itemsize if 0 not in shape else 0
        memory = (ctypes.c_char * reach).from_address(memptr.ptr + low if reach else 0)
        self.values = np.ndarray(shape, dtype, memory if reach else b"", -low, strides)
        self.owner = memptr.owner

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "strides", "size", "ndim", "nbytes", "flags"):
            return getattr(self.values, name)
        raise AttributeError(name)

    def __getitem__(self, index: Any) -> ndarray:
        return of(self.values[index])

    def __setitem__(self, index: Any, value: ndarray) -> None:
        self.values[index] = value.values

    def copy(self) -> ndarray:
        return of(self.values.copy())

    def transpose(self, *order: Any) -> ndarray:
        return of(self.values.transpose(*order))

    def reshape(self, *shape: Any) -> ndarray:
        return of(self.values.reshape(*shape))

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return self.values.copy()
        assert out.shape == self.shape
        np.copyto(out, self.values)
        return out

    def set(self, values: np.ndarray, stream: Any = None) -> None:
        assert values.shape == self.shape
        np.copyto(self.values, values)

    def view(self, dtype: Any) -> ndarray:
        return of(self.values.view(dtype))

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self, self.values.__array_interface__["data"][0])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        about = {**self.values.__array_interface__, "strides": self.strides, "version": 3}
        return about

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


def of(values: Any) -> ndarray:
    """Return an array over NumPy's memory."""
    made = ndarray.__new__(ndarray)
    made.values = np.asarray(values)
    return made


def asarray(value: Any) -> ndarray:
    """Return an array over GPU memory, or with a copy of host memory."""
    if isinstance(value, ndarray):
        return value
    if not hasattr(value, "__cuda_array_interface__"):
        return of(np.array(value))
    told = value.__cuda_array_interface__
    kind, pointer = np.dtype(told["typestr"]), MemoryPointer(value, told["data"][0])
    strides = told["strides"] or np.empty(told["shape"], kind).strides
    return ndarray(told["shape"], kind, pointer, strides)


def ascontiguousarray(array: ndarray) -> ndarray:
    return of(np.ascontiguousarray(array.values))


def asnumpy(array: ndarray) -> np.ndarray:
    return array.values.copy()


def empty(shape: Any, dtype: Any) -> ndarray:
    """Return an array that is not zeros."""
    return of(np.full(shape, 0xAB, dtype))


class Device:
    """The only one."""

    id = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class Stream:
    """Knows how often it was waited for, and by which threads it was used."""

    made: ClassVar[list[Stream]] = []

    def __init__(self, non_blocking: bool = False) -> None:
        self.non_blocking = non_blocking
        self.synchronized = 0
        self.threads: set[int] = set()
        self.made.append(self)

    def __enter__(self) -> Stream:
        self.threads.add(threading.get_ident())
        return self

    def __exit__(self, *error: object) -> None: ...

    def synchronize(self) -> None:
        self.synchronized += 1

    def record(self, event: Event) -> Event:
        return event


class Event:
    """Is past from the beginning, as everything that is put into a stream is."""

    done = True

    def __init__(self, disable_timing: bool = False) -> None:
        self.disable_timing = disable_timing

    def synchronize(self) -> None: ...


NULL = Stream()
"""The stream of whoever has chosen none."""
NULL.made.clear()


class CUDARuntimeError(RuntimeError):
    """Raised by nothing here; zarr looks for it."""


cuda = SimpleNamespace(
    runtime=SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=CUDARuntimeError),
    is_available=lambda: True,
    Device=Device,
    Event=Event,
    Stream=Stream,
    alloc_pinned_memory=lambda nbytes: bytearray(nbytes),
    get_current_stream=lambda: NULL,
)
