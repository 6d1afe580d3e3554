"""Collections whose graphs never reach the hook: said once for each kind, and counted."""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakSet

from dask.array import Array
from dask.delayed import Delayed

from gpusched.breaks import GraphBreak
from gpusched.graph.frontends.adapter import Expr, front_ends
from gpusched.store.statistics import updating

REASON = GraphBreak.COLLECTION("a collection whose graph no hook sees")

_warned: WeakSet[type] = WeakSet()


def note_unknown(collections: Any) -> None:
    """Warn of collections that are neither arrays nor one of dask's other kinds, and count them.

    Parameters
    ----------
    collections
        What is computed: one collection, or several.
    """
    several = isinstance(collections, list | tuple | set)
    for each in collections if several else [collections]:
        kind = type(each)
        if not is_known(each):
            with updating() as counters:
                counters.breaks[kind.__name__, REASON] += 1
            if kind not in _warned:
                _warned.add(kind)
                warnings.warn(
                    f"gpusched computes {kind.__module__}.{kind.__name__} without fusion, as dask "
                    "does: its __dask_optimize__ is not dask.array's. Arrays that it is made of "
                    "are fused if they are computed by themselves.",
                    stacklevel=5,
                )


def is_known(collection: Any) -> bool:
    """Return whether a collection's arrays are fused, or it is one of dask's that has none."""
    if type(collection).__module__.partition(".")[0] == "dask" or isinstance(collection, Delayed):
        return True
    ends = tuple(end.array for end in front_ends())
    expression = getattr(collection, "expr", None)
    if isinstance(expression, Expr):
        return isinstance(expression, ends)
    composite = getattr(collection, "__dask_exprs__", None)
    parts = composite() if callable(composite) else None
    if parts:
        return all(isinstance(part, ends) for part in parts)
    return getattr(collection, "__dask_optimize__", None) is Array.__dask_optimize__
