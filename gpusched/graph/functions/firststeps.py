"""What dask's reductions call on each chunk first, and what joins the results, however many.

Users' reductions (`dask.array.reduction`) may have steps that are made for as many results as there
are chunks; dask's own are for any number of them, of whichever parts of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask.array import chunk, reductions

from gpusched.adapters.arrays import nanmax_skip, nanmin_skip
from gpusched.adapters.tasks import Task
from gpusched.emit.dtypes import HALF
from gpusched.graph.functions.partials import bare

_SUM, _PRODUCT = (chunk.sum,), (chunk.prod,)
STEPS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (chunk.sum, _SUM),
    (chunk.nansum, _SUM),
    (chunk.prod, _PRODUCT),
    (chunk.nanprod, _PRODUCT),
    (chunk.any, (chunk.any,)),
    (chunk.all, (chunk.all,)),
    (chunk.min, (chunk.min,)),
    (chunk.max, (chunk.max,)),
    (reductions.chunk_min, (reductions.chunk_min, chunk.min)),
    (reductions.chunk_max, (reductions.chunk_max, chunk.max)),
    (nanmin_skip, (nanmin_skip,)),
    (nanmax_skip, (nanmax_skip,)),
    (reductions.mean_chunk, (reductions.mean_combine, reductions.mean_agg)),
    (reductions.moment_chunk, (reductions.moment_combine, reductions.moment_agg)),
)
"""The first steps of dask's reductions, and the steps after them; the first of these leaves what
can be joined again."""
_SHAPING = frozenset(["axis", "keepdims", "dtype", "order", "ddof", "implicit_complex_dtype"])
"""Options of these steps with which they take however many results all the same; `initial`, or a
function of somebody's, would be taken into account for each."""

_FUNCTIONS = {
    "sum": (chunk.sum, chunk.nansum),
    "numel": (reductions.numel, reductions.nannumel),
}
"""Functions that dask itself passes to them."""
# By identity: each task of a graph is asked, and users' functions may not be hashable.
_AFTER = {id(first): after for first, after in STEPS}
AFTER_FIRST = frozenset(id(each) for _, after in STEPS for each in after)
"""By identity, all that are called after a first step."""


def is_first_step(task: Task) -> bool:
    """Return whether a task is what one of dask's own reductions does with a chunk first.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.functions.firststeps import is_first_step
    >>> is_first_step(Task("s", np.sum, TaskRef("x"), axis=(0,), keepdims=True))
    True
    >>> is_first_step(Task("s", np.median, TaskRef("x"), axis=(0,), keepdims=True))
    False
    """
    axes = task.kwargs.get("axis")
    if type(axes) is not tuple or task.kwargs.get("keepdims") is not True:
        return False
    return id(bare(task.func)) in _AFTER and all(type(axis) is int for axis in axes)


def is_step(function: Any) -> bool:
    """Return whether dask's reductions call a function with a chunk, or with results of chunks.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.graph.functions.firststeps import is_step
    >>> is_step(chunk.nansum), is_step(chunk.argmax)
    (True, False)
    """
    return id(function) in _AFTER or id(function) in AFTER_FIRST


def after(function: Any, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what joins results of a function that is called with a chunk and some options.

    Nothing if it is not a first step, or its results cannot be joined.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.graph.functions.firststeps import after
    >>> after(chunk.nansum, {"axis": (0,), "keepdims": True}) == (chunk.sum,)
    True
    >>> after(chunk.nansum, {"axis": (0,), "initial": 1})
    ()
    """
    found = _AFTER.get(id(function), ())
    # Each of several results of float16 would be rounded.
    return found if found and are_dask_s(options) and options.get("dtype") != HALF else ()


def are_dask_s(options: Mapping[str, Any]) -> bool:
    """Return whether a step has no options but those that dask's own reductions have."""
    return all(
        name in _SHAPING or any(value is each for each in _FUNCTIONS.get(name, ()))
        for name, value in options.items()
    )
