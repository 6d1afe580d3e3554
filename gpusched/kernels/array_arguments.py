"""What kernels take: NumPy and CuPy arrays, numbers, and arrays of any library with DLPack."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from gpusched.kernels.errors import KernelError
from gpusched.kernels.signatures import checked
from gpusched.record.record import PYTHON_SCALARS

_CUDA = 2
"""DLPack's number for memory of NVIDIA GPUs."""


def taken(value: Any) -> Any:
    """Return an argument as a number, or as an array that kernels can take.

    Lists become arrays; arrays of other libraries are seen through DLPack, without a copy.

    Raises
    ------
    KernelError
        For anything else.

    Examples
    --------
    >>> taken([1, 2]).dtype
    dtype('int64')
    """
    if type(value) in PYTHON_SCALARS:
        return value
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return _plain(value)
    cupy = sys.modules.get("cupy")
    if cupy is not None and type(value) is cupy.ndarray:
        checked(value.dtype)
        return value
    if isinstance(value, np.memmap):
        return _plain(np.asarray(value))
    if isinstance(value, list | tuple):
        return _plain(np.asarray(value))
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return _from_dlpack(value)
    raise KernelError(f"kernels take arrays and numbers, not {_named(value)}")


def _named(value: Any) -> str:
    kind = type(value)
    if value is None:
        return "None"
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _plain(value: Any) -> Any:
    dtype = checked(value.dtype)
    if dtype != value.dtype or not value.dtype.isnative:
        value = value.astype(dtype)
    if isinstance(value, np.ndarray) and any(s % value.itemsize for s in value.strides):
        # A field of records: kernels count strides in elements.
        return value.copy()
    return value


def _from_dlpack(value: Any) -> Any:
    if value.__dlpack_device__()[0] != _CUDA:
        return _plain(np.from_dlpack(value))
    import cupy

    found = cupy.from_dlpack(value)
    checked(found.dtype)
    return found


def uninitialised_value(dtype: np.dtype) -> bool | int | float:
    """Return a value that spoils a result, for memory that nobody has written.

    Examples
    --------
    >>> uninitialised_value(np.dtype("int8")), uninitialised_value(np.dtype("float32"))
    (127, nan)
    """
    if dtype.kind == "b":
        return True
    return math.nan if dtype.kind in "fc" else int(np.iinfo(dtype).max)
