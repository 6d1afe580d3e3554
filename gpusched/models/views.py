"""Arrays of other libraries over the memory of chunks, and back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
"""DLPack's numbers of kinds of memory."""


def is_cupy(value: Any) -> bool:
    """Return whether a value is a CuPy array, without importing CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def to_array(value: Any) -> Any:
    """Return any library's array as a NumPy array, or as a CuPy one if it is on a GPU.

    Memory is shared wherever the library lends it. Raises `TypeError` if the value is not an array.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.models.views import to_array
    >>> x = np.ones(3)
    >>> to_array(x) is x, to_array(2.0).shape
    (True, ())
    """
    if isinstance(value, np.ndarray) or is_cupy(value):
        return value
    device = getattr(value, "__dlpack_device__", None)
    kind = device()[0] if device is not None else None
    if kind in (_CUDA, _CUDA_MANAGED):
        import cupy

        return cupy.from_dlpack(value)
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise TypeError(
            f"a sparse {type(value).__name__}: have the model give dense arrays "
            "(sparse_output=False in scikit-learn), or put it in a function that calls .toarray()"
        )
    if kind not in (None, _CPU, _CUDA_HOST):
        raise TypeError(f"a {type(value).__name__} on a device that is neither CPU nor CUDA")
    if not hasattr(value, "__array__") and not isinstance(value, np.generic | int | float | bool):
        raise TypeError(
            f"{type(value).__module__}.{type(value).__qualname__}, which is not an array"
        )
    return np.asarray(value)


def placed(array: Any, like: Any) -> Any:
    """Return an array where another one is: on the CPU for NumPy's, on the GPU for CuPy's."""
    if is_cupy(array) == is_cupy(like):
        return array
    import cupy

    return cupy.asarray(array) if is_cupy(like) else cupy.asnumpy(array)


def lendable(array: Any) -> Any:
    """Return an array that DLPack can lend: itself, or a copy if it runs backwards.

    CuPy's arrays are lent only where they are contiguous, and copied on the GPU otherwise: torch
    ends the process at a negative stride (pytorch/pytorch#188023), for which CuPy exports a wrong
    one (cupy/cupy#10172); JAX and TensorFlow refuse what is not compact (jax-ml/jax#8082). Raises
    `TypeError` if its dtype is none that DLPack has.
    """
    if array.dtype.kind not in "biufc":
        raise TypeError(f"dtype {array.dtype} is none that DLPack has: convert with astype first")
    if is_cupy(array):
        return array if array.flags.c_contiguous else array.copy()
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return array.copy()
    return array
