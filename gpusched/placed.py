"""Chunks that are in device memory, of programs that know nothing of it.

A worker that owns a GPU keeps chunks of an unchanged NumPy program there as `Placed` values.
Kernels compute with what is in them; everything else gets NumPy's arrays: the program's own
functions, other libraries, and whoever receives a chunk in a process without such a worker.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np

TAKES_PLACED = "__gpusched_takes_placed__"
"""Attribute of functions that are given `Placed` values as they are: those that decide for each of
their calls."""


class Mover(Protocol):
    """Copies arrays between host and device memory.

    Notes
    -----
    Thread-safe.
    """

    def to_device(self, array: np.ndarray, wait: bool = True) -> Any:
        """Return a copy in device memory, an array of CuPy's.

        Without waiting it is there for what the calling thread launches next.
        """

    def to_host(self, array: Any) -> np.ndarray:
        """Return a copy in host memory of an array of CuPy's."""

    def uploaded(self, array: np.ndarray, copy: Placed) -> None:
        """Take note that a task has copied an array, which others may take too."""


_mover: Mover | None = None


def install(mover: Mover | None) -> None:
    """Have this process keep chunks of NumPy programs in device memory, or in host memory: None."""
    global _mover
    _mover = mover


def mover() -> Mover | None:
    """Return what copies arrays in this process; None if its chunks stay in host memory.

    Examples
    --------
    >>> from gpusched.placed import mover
    >>> print(mover())
    None
    """
    return _mover


class _Lent(threading.local):
    mover: Mover | None = None


_lent = _Lent()


@contextmanager
def lent(mover: Mover) -> Iterator[None]:
    """Let the function that this thread calls next have its chunks in device memory.

    What it returns may hold `Placed` values, which whoever calls it must expect.
    """
    outer, _lent.mover = _lent.mover, mover
    try:
        yield
    finally:
        _lent.mover = outer


def take() -> Mover | None:
    """Return what was lent, once: what is called from there on returns NumPy's arrays.

    A task may compute other graphs, by a scheduler that knows nothing of `Placed` values.
    """
    mover, _lent.mover = _lent.mover, None
    return mover


class Placed:
    """A chunk in device memory that is a NumPy array to the program.

    Parameters
    ----------
    array
        CuPy's; nobody changes it.

    Notes
    -----
    Immutable. Pickling gives a copy in device memory where chunks are kept there, and a NumPy array
    everywhere else.
    """

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def dtype(self) -> np.dtype:
        """The dtype."""
        return np.dtype(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self.array.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.array.nbytes)

    def to_host(self) -> np.ndarray:
        """Return a copy as NumPy's array."""
        if _mover is not None:
            return _mover.to_host(self.array)
        return np.asarray(self.array.get(order="A"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a chunk in device memory has no NumPy array without a copy")
        return np.asarray(self.to_host(), dtype)

    def __sizeof__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return f"<chunk in device memory {self.dtype} {self.shape}>"

    def __reduce__(self) -> Any:
        return restored, (self.to_host(),)

    def __dask_tokenize__(self) -> Any:
        from dask.base import normalize_token

        return normalize_token(self.to_host())


def extent(array: Any) -> int:
    """Return the bytes of an array's elements, those that it shows several times counted once.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.placed import extent
    >>> extent(np.broadcast_to(np.ones(3), (1000, 3)))
    24
    """
    axes = zip(array.shape, array.strides, strict=True)
    repeated = [size if stride else min(size, 1) for size, stride in axes]
    return int(array.itemsize * math.prod(repeated))


def restored(array: np.ndarray) -> Any:
    """Return a chunk that has come from another process, where this process keeps chunks."""
    if _mover is not None:
        with suppress(MemoryError):  # The task that takes it then finds out what fits.
            return Placed(_mover.to_device(array))
    return array


def holds_placed(value: Any) -> bool:
    """Return whether a value is a chunk in device memory, or holds one in its collections.

    Examples
    --------
    >>> from gpusched.placed import holds_placed
    >>> holds_placed([1, {"a": (2,)}])
    False
    """
    kind = type(value)
    if kind is Placed:
        return True
    if kind is tuple or kind is list:
        return any(map(holds_placed, value))
    return kind is dict and any(map(holds_placed, value.values()))


def hosted(value: Any) -> Any:
    """Return a value with NumPy arrays instead of chunks in device memory.

    Examples
    --------
    >>> from gpusched.placed import hosted
    >>> hosted({"a": [1, 2]})
    {'a': [1, 2]}
    """
    if not holds_placed(value):
        return value
    return _hosted(value, {})


def _hosted(value: Any, found: dict[int, np.ndarray]) -> Any:
    """Return what `hosted` does; what is one chunk stays one array."""
    kind = type(value)
    if kind is Placed:
        if id(value) not in found:
            found[id(value)] = value.to_host()
        return found[id(value)]
    if kind is tuple or kind is list:
        return kind([_hosted(item, found) for item in value])
    if kind is dict:
        return {key: _hosted(item, found) for key, item in value.items()}
    return value
