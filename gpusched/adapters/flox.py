"""Private functions of flox, which it puts into the tasks of group-bys: gpusched knows them there.

flox has no public names for them. What has not been imported has put nothing into a graph, so
that nothing here imports flox but to make such a task.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any


def is_aggregation(value: Any) -> bool:
    """Return whether a value is what says how groups are reduced."""
    aggregations = sys.modules.get("flox.aggregations")
    return aggregations is not None and isinstance(value, aggregations.Aggregation)


def is_expand_dims(function: Any) -> bool:
    """Return whether a function is the one that puts the results of chunks side by side."""
    flox_dask = sys.modules.get("flox.dask")
    return flox_dask is not None and function is flox_dask._expand_dims


def is_extract_result(function: Any) -> bool:
    """Return whether a function is the one that takes a result out of a dictionary."""
    flox_dask = sys.modules.get("flox.dask")
    return flox_dask is not None and function is flox_dask._extract_result


def is_reduce_blockwise(function: Any) -> bool:
    """Return whether a function is the one that reduces chunks that hold whole groups."""
    flox_core = sys.modules.get("flox.core")
    return flox_core is not None and function is flox_core._reduce_blockwise


def is_var_combine(function: Any) -> bool:
    """Return whether a function is the one that joins the variances of chunks."""
    aggregations = sys.modules.get("flox.aggregations")
    return aggregations is not None and function is aggregations._var_combine


def joins_alike(function: partial[Any]) -> bool:
    """Return whether a partial application joins results of chunks that have the same groups."""
    flox_dask = sys.modules.get("flox.dask")
    if flox_dask is None or function.func not in (flox_dask._simple_combine, flox_dask._aggregate):
        return False
    options = function.keywords
    inner = options.get("combine", function)
    return (
        getattr(inner, "func", None) is flox_dask._simple_combine
        and not function.args
        and options["reindex"].blockwise is True
    )
