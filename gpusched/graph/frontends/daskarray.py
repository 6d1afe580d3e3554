"""What dask-array computes in another way than dask.array, as kernels compute it there.

It reduces sliding windows by as many passes as they are long: it adds a chunk's elements to those
behind them, once for each place in a window: means of 30 days took 1.5 times the processor time.
Its quantiles without NaN are of sorted lanes.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import HALF
from gpusched.graph.frontends.adapter import QUANTILES, window_reductions
from gpusched.plan.expression import UnfusibleError
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, compute, recorder_of
from gpusched.record.handlers import noted, recording
from gpusched.record.moments import moments
from gpusched.record.selection import SHORT, short_nanquantile

REDUCERS: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "any": np.any, "all": np.all,
    "mean": np.sum, "var": np.var, "nansum": np.sum, "nanprod": np.prod, "nanmin": np.fmin.reduce,
    "nanmax": np.fmax.reduce, "nanmean": np.sum, "nanvar": np.var,
}  # fmt: skip
"""What reduces windows, by dask-array's names; NaN is replaced before."""


@own("recorded")
def window_reduced(block: Any, **options: Any) -> Any:
    """dask-array's ``_sliding_window_reduce_block``: reductions of the windows along an axis.

    Parameters
    ----------
    block
        The chunk, with what its last windows have of the next one.
    **options
        dask-array's.
    """
    plain, reductions = window_reductions()
    if not isinstance(block, LazyChunk):
        return plain(block, **options)
    recorder = recorder_of(block)
    with recording(recorder):
        try:
            found = _recorded(block, reductions, **options)
        except UnfusibleError as reason:
            recorder.broke(plain.__name__, reason.reason)
            found = compute(recorder, plain, (block,), options)
        return noted(recorder, found, window_reduced, (block,), options)


def _recorded(block: LazyChunk, reductions: tuple[type, ...], *, window: int, sliding_axis: int,
              reduction_cls: Any, ddof: Any, implicit_complex_dtype: bool, out_dtype: Any,
              keepdims: bool, reduced_axis: int) -> Any:  # fmt: skip
    del implicit_complex_dtype
    name, dtype = reduction_cls.sliding_window_reducer, np.dtype(out_dtype)
    reduce = REDUCERS.get(name)
    if reduce is None or reduction_cls not in reductions:
        raise UnfusibleError(GraphBreak.NO_KERNEL, f"windows reduced by {name}")
    adds = name.removeprefix("nan") in ("sum", "prod", "mean")
    if block.dtype.kind not in "biuf" or block.shape[sliding_axis] < window:
        raise UnfusibleError(GraphBreak.DTYPE, f"windows of {block.dtype}, or fewer elements")
    if adds and np.result_type(block.dtype, dtype) != dtype:
        raise UnfusibleError(GraphBreak.DTYPE, f"windows of {block.dtype} added up in {dtype}")
    values: Any = block
    missing: Any = np.isnan(block) if block.dtype.kind == "f" else None
    if adds and name.startswith("nan") and missing is not None:
        values = np.where(missing, int(name == "nanprod"), block)
    shown = _windows(values, window, sliding_axis)
    if name.endswith("var"):
        skips = name == "nanvar" and missing is not None
        found = _variances(block, shown, ddof, dtype, skips)
    else:
        found = reduce(shown, axis=-1, dtype=dtype) if adds else reduce(shown, axis=-1)
    if name == "mean":
        found = np.divide(found, window)
    if name == "nanmean":
        valid = np.ones_like(block, bool) if missing is None else ~missing
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.divide(found, _windows(valid, window, sliding_axis).sum(axis=-1))
        found = found.astype(dtype)
    if found.dtype != dtype:
        raise UnfusibleError(GraphBreak.DTYPE, f"results of {found.dtype} instead of {dtype}")
    return np.expand_dims(found, axis=reduced_axis) if keepdims else found


def _variances(block: LazyChunk, shown: Any, ddof: Any, dtype: np.dtype, skips: bool) -> Any:
    """Return variances of windows, NaN where an infinite number is in one."""
    count = shown.shape[-1]
    if type(ddof) is not int or count <= ddof or block.dtype == HALF:
        raise UnfusibleError(GraphBreak.EMPTY, "no degrees of freedom left, or float16")
    if not skips and count < 2:
        raise UnfusibleError(GraphBreak.EMPTY, "windows of one element, of which NaN has none")
    if not skips:
        return np.var(shown, axis=-1, ddof=ddof)
    number = (~np.isnan(shown)).sum(axis=-1, keepdims=True)
    squares = moments(shown, (shown.ndim - 1,), number, skip=True, dtype=dtype).squares
    left, infinite = number - ddof, np.isinf(shown).any(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where((left < 0) | infinite, np.nan, squares / left)
    return found[..., 0].astype(dtype)


def _windows(array: Any, window: int, axis: int) -> Any:
    return np.lib.stride_tricks.sliding_window_view(array, window, axis)


@own("recorded")
def nanquantile(a: Any, q: Any, axis: Any = None, method: Any = "linear", keepdims: Any = False,
                **kwargs: Any) -> Any:  # fmt: skip
    """dask-array's ``_custom_quantile``: dask's function, which takes quantiles as an array.

    Parameters
    ----------
    a
        The chunk.
    q
        A number, or several in a list or an array.
    axis, method, keepdims, **kwargs
        As dask-array gives them.
    """
    if not isinstance(a, LazyChunk):
        module, _, name = QUANTILES.rpartition(".")
        return getattr(importlib.import_module(module), name)(
            a, q, axis, method, keepdims, **kwargs
        )
    short = method == "linear" and len(axis) == 1 and axis[0] == a.ndim - 1 > 0
    if kwargs or not short or a.shape[-1] > SHORT:
        return np.nanquantile(a, q, axis=tuple(axis), method=method, keepdims=keepdims, **kwargs)
    given = q if isinstance(q, LazyChunk) else np.asarray(q, np.float64)
    return short_nanquantile(a, given, axis, method, keepdims)
