"""Calls that dask gives the place of their chunk, as what they are for that place.

``map_overlap`` trims its results by where a chunk is, and ``dask.array.gradient`` takes the points
of a chunk from those of the whole array. A program that depended on the place itself would be
another one for each chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpusched.adapters.arrays import gradient_kernel, pass_located, trim
from gpusched.adapters.tasks import DataNode, GraphNode, Task
from gpusched.graph.partials import bare
from gpusched.record.catalogue import own


class Located(NamedTuple):
    """A call for one place."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def located(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Located | None:
    """Return what `pass_located` calls with what, for functions of dask's own; None for others.

    Parameters
    ----------
    args, kwargs
        Its arguments. Only those that are chunks may be something else than plain values.
    """
    function, keys, *rest = args
    if type(keys) is not tuple or len(keys) != 1 or len(rest) != 2:
        return None
    place, chunk = rest
    if type(place) is not tuple or any(isinstance(v, GraphNode) for v in kwargs.values()):
        return None
    if bare(function) is trim and keys == ("_overlap_trim_info",) and not kwargs:
        index = function(_Indexed(len(place[0])), _overlap_trim_info=place)
        return Located(trimmed, (chunk, index), {})
    if function is gradient_kernel and keys == ("block_id",):
        return _gradient(chunk, place, **kwargs)
    return None


@own("picks")
def trimmed(chunk: Any, index: tuple[slice, ...]) -> Any:
    """Return what dask's ``_trim`` leaves of a chunk, which may have fewer axes than its array.

    Examples
    --------
    >>> from gpusched.graph.located import trimmed
    >>> trimmed(np.arange(5), (slice(1, -1), slice(1, -1)))
    array([1, 2, 3])
    """
    return chunk[index[: chunk.ndim]]


def _gradient(chunk: Any, place: tuple[int, ...], coord: Any, axis: int, array_locs: Any,
              grad_kwargs: Mapping[str, Any]) -> Located:  # fmt: skip
    points = coord
    if array_locs is not None:
        starts, stops = array_locs
        points = coord[starts[place[axis]] : stops[place[axis]]]
    return Located(np.gradient, (chunk, points), {"axis": axis, **grad_kwargs})


class _Indexed:
    """Stands for a chunk of which a view is taken: what it returns is the index."""

    def __init__(self, ndim: int) -> None:
        self.ndim = ndim

    def __getitem__(self, index: Any) -> Any:
        return index


def computes_located(task: Task) -> bool:
    """Return whether a task has such a call that is recorded, and more than a view."""
    inner = task.args[0].values()
    if not any(isinstance(node, Task) and node.func is pass_located for node in inner):
        return False
    given = (value.value for value in task.args[3:] if type(value) is DataNode)
    return any(value is gradient_kernel for value in given)
