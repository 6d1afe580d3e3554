"""Kernels on dask arrays: one task a chunk, which dask fuses with those around it."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from dask.array import Array, asanyarray, blockwise
from dask.array import reduction as dask_reduction
from dask.array.utils import meta_from_array

from gpusched.fusion.record import PYTHON_SCALARS
from gpusched.kernels.reduce import ReduceKernel
from gpusched.kernels.scalar import ScalarKernel
from gpusched.kernels.signatures import Kinds

KEPT = (Array, np.generic, *PYTHON_SCALARS)
"""What is part of a task as it is."""


def is_dask(value: Any) -> bool:
    """Return whether `value` is a dask array."""
    return isinstance(value, Array)


def kinds(args: tuple[Any, ...]) -> Kinds:
    """Return the dtypes of arrays and NumPy scalars, and the types of Python numbers."""
    return tuple(type(a) if type(a) in PYTHON_SCALARS else a.dtype for a in args)


def prepared(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments as dask arrays and numbers."""
    return tuple(a if isinstance(a, KEPT) else asanyarray(a) for a in args)


def elementwise(kernel: ScalarKernel, args: tuple[Any, ...]) -> Any:
    """Return a kernel's results as dask arrays; several come of one task a chunk."""
    args = prepared(args)
    operation = kernel.typed(kinds(args))
    if operation.single:
        return _blockwise(kernel, args, operation.results[0])
    whole = _blockwise(kernel, args, np.dtype(object))
    index = _index(whole.ndim)
    return tuple(
        blockwise(operator.getitem, index, whole, index, k, None, dtype=dtype,
                  meta=_meta(args, whole.ndim, dtype))
        for k, dtype in enumerate(operation.results)
    )  # fmt: skip


def _index(ndim: int) -> tuple[int, ...]:
    """Return names of axes, so that the last ones of all arguments are the same."""
    return tuple(range(ndim))[::-1]


def _blockwise(kernel: ScalarKernel, args: tuple[Any, ...], dtype: np.dtype) -> Array:
    ndim = max(a.ndim for a in args if isinstance(a, Array))
    pairs = [part for a in args for part in (a, _index(a.ndim) if isinstance(a, Array) else None)]
    meta = _meta(args, ndim, dtype)
    return blockwise(kernel, _index(ndim), *pairs, dtype=dtype, meta=meta)


def _meta(args: tuple[Any, ...], ndim: int, dtype: np.dtype) -> Any:
    first = next(a for a in args if isinstance(a, Array))
    return meta_from_array(first._meta, ndim, dtype)


def reduction(kernel: ReduceKernel, x: Array, axis: Any, keepdims: bool) -> Array:
    """Return an array's values joined along axes: within each chunk, then over the chunks."""
    dtype = kernel.typed(x.dtype).results[0]
    found: Array = dask_reduction(
        x, kernel, kernel, axis=axis, keepdims=keepdims, dtype=dtype, concatenate=True,
        combine=kernel, name=kernel.__name__, meta=_meta((x,), 0, dtype),
    )  # fmt: skip
    return found
