"""Kernels on dask arrays: one task per chunk, which dask fuses with those around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dask.array import Array, asanyarray, blockwise, broadcast_arrays
from dask.array import reduction as dask_reduction
from dask.array.core import unify_chunks
from dask.array.overlap import ensure_minimum_chunksize, overlap
from dask.array.reductions import cumreduction
from dask.array.utils import meta_from_array
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.kernels.signatures import Kinds
from gpusched.kernels.typed import Typed
from gpusched.record.record import PYTHON_SCALARS
from gpusched.record.recorded import RecordedFunction, one_of

if TYPE_CHECKING:
    from gpusched.kernels.elementwise import ScalarKernel
    from gpusched.kernels.reduction import ReduceKernel
    from gpusched.kernels.scan import AccumulateKernel
    from gpusched.kernels.stencil import PaddedKernel
    from gpusched.kernels.tuple_reduction import TupleReduceKernel

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
    """Return a kernel's results as dask arrays; several come of one task per chunk."""
    args = prepared(args)
    operation = kernel.typed(kinds(args))
    whole = _blockwise(kernel, args, operation)
    return whole if operation.single else _parts(whole, args, operation)


def _parts(whole: Array, args: tuple[Any, ...], operation: Typed) -> tuple[Array, ...]:
    """Return one array for each result of an array of tuples."""
    index = _index(whole.ndim)
    return tuple(
        blockwise(one_of, index, whole, index, k, None, dtype=dtype,
                  meta=_meta(args, whole.ndim, dtype))
        for k, dtype in enumerate(operation.results)
    )  # fmt: skip


def _index(ndim: int) -> tuple[int, ...]:
    """Return names of axes, so that the last ones of all arguments are the same."""
    return tuple(range(ndim))[::-1]


def _blockwise(
    kernel: RecordedFunction, args: tuple[Any, ...], operation: Typed, **options: Any
) -> Array:
    dtype = operation.results[0] if operation.single else np.dtype(object)
    ndim = max(a.ndim for a in args if isinstance(a, Array))
    pairs = [part for a in args for part in (a, _index(a.ndim) if isinstance(a, Array) else None)]
    meta = _meta(args, ndim, dtype)
    return blockwise(kernel, _index(ndim), *pairs, dtype=dtype, meta=meta, **options)


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


def tuple_reduction(
    kernel: TupleReduceKernel, values: tuple[Any, ...], axis: Any, keepdims: bool
) -> tuple[Array, ...]:
    """Return the items of tuples joined along axes: of each chunk as records, then those."""
    arrays = tuple(broadcast_arrays(*map(asanyarray, values)))
    ndim = arrays[0].ndim
    axes = range(ndim) if axis is None else normalize_axis_tuple(axis, ndim)
    dtype = kernel.record_dtype(tuple(a.dtype for a in arrays))
    pairs, join = [part for a in arrays for part in (a, range(ndim))], kernel.of_records
    of_chunks = blockwise(
        kernel.records, range(ndim), *pairs, axis=tuple(axes), keepdims=True, dtype=dtype,
        adjust_chunks=dict.fromkeys(axes, 1), meta=np.empty((0,) * ndim, dtype),
        name=None, token=kernel.__name__,
    )  # fmt: skip
    found = dask_reduction(
        of_chunks, join, join, axis=tuple(axes), keepdims=keepdims, dtype=dtype,
        concatenate=True, combine=join, name=kernel.__name__, meta=np.empty((), dtype),
    )  # fmt: skip
    return tuple(found[name] for name in dtype.names or ())


def stencil(kernel: PaddedKernel, args: tuple[Any, ...]) -> Any:
    """Return a stencil's results as dask arrays: chunks get their borders from their neighbours."""
    args = prepared(args)
    kernel.check(args)
    interior = kernel.interior
    operation = interior.typed(kinds(args))
    axes = range(len(interior.depth))
    depth, boundary = dict(zip(axes, interior.depth, strict=True)), dict(enumerate(kernel.boundary))
    args = _aligned(args, interior.depth)
    chunks = next(a.chunks for a, found in zip(args, interior.offsets, strict=True) if found)
    bordered = tuple(
        overlap(a, depth, boundary, allow_rechunk=False) if found else a
        for a, found in zip(args, interior.offsets, strict=True)
    )
    sizes = dict(zip(_index(len(chunks)), chunks, strict=True))
    whole = _blockwise(interior, bordered, operation, align_arrays=False, adjust_chunks=sizes)
    return whole if operation.single else _parts(whole, args, operation)


def _aligned(args: tuple[Any, ...], depth: tuple[int, ...]) -> tuple[Any, ...]:
    """Return arrays with the same chunks, none of them smaller than the border."""
    arrays = [a for a in args if isinstance(a, Array)]
    pairs = [part for a in arrays for part in (a, _index(a.ndim))]
    _, unified = unify_chunks(*pairs)
    largest = max(unified, key=lambda a: a.ndim)
    chunks = tuple(
        ensure_minimum_chunksize(d, c) for d, c in zip(depth, largest.chunks, strict=True)
    )
    found = iter(a.rechunk(chunks[len(chunks) - a.ndim :]) for a in unified)
    return tuple(next(found) if isinstance(a, Array) else a for a in args)


def scan(kernel: AccumulateKernel, x: Array, axis: int | None) -> Array:
    """Return an array scanned: within each chunk, then with what the chunks before it come to."""
    dtype = kernel.dtype(x.dtype)
    identity = kernel.joins.typed(x.dtype).identity
    if axis is None and x.ndim != 1:
        x, axis = x.ravel(), 0
    found: Array = cumreduction(
        kernel, kernel.binary(dtype), identity, x.astype(dtype), 0 if axis is None else axis, dtype
    )
    return found
