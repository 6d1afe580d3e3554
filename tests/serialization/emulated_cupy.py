"""As much of CuPy as the serialization of GPU arrays uses, in host memory.

Its arrays refuse what a GPU's do: to be read by NumPy's functions, or through Python's buffers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest


class Array:
    """An array on the emulated GPU."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values
        self.dtype, self.shape, self.size = values.dtype, values.shape, values.size
        self.nbytes, self.strides = values.nbytes, values.strides

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._values.__array_interface__, "version": 3}

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __getitem__(self, index: Any) -> Array:
        return Array(self._values[index])

    def __setitem__(self, index: Any, value: Array) -> None:
        self._values[index] = value._values

    def copy(self) -> Array:
        return Array(self._values.copy())

    def reshape(self, *shape: int) -> Array:
        return Array(self._values.reshape(*shape))

    def transpose(self, *axes: int) -> Array:
        return Array(self._values.transpose(*axes))

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return self._values.copy()
        assert out.shape == self.shape
        np.copyto(out, self._values)
        return out

    def set(self, values: np.ndarray) -> None:
        assert values.shape == self.shape
        np.copyto(self._values, values)


class Stream:
    """Counts how often it was waited for, and knows the threads that used it."""

    made: ClassVar[list[Stream]] = []

    def __init__(self, non_blocking: bool = False) -> None:
        self.non_blocking = non_blocking
        self.synchronized = 0
        self.threads: set[int] = set()
        self.made.append(self)

    def __enter__(self) -> Stream:
        self.threads.add(threading.get_ident())
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        self.synchronized += 1


class Device:
    """The only one."""

    id = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Take CuPy's place."""
    module: Any = ModuleType("cupy")
    null = Stream()
    monkeypatch.setattr(Stream, "made", [])
    module.ndarray = Array
    module.empty = lambda shape, dtype: Array(np.full(shape, 0xAB, dtype))
    module.cuda = SimpleNamespace(
        Device=Device,
        Stream=Stream,
        alloc_pinned_memory=lambda nbytes: bytearray(nbytes),
        get_current_stream=lambda: null,
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    yield module
