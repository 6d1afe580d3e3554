"""dask-array's quantiles without NaN, which it computes of sorted lanes: kernels that select."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gpusched.graph.frontends.adapter import QUANTILES
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk
from gpusched.record.selection import SHORT, short_nanquantile


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
