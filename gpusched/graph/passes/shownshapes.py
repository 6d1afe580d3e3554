"""Chunks that show one element, inside tasks of pieces: their shapes become operands of the tasks.

dask makes `zeros_like` of each piece of a chunk by the piece's own shape, which is a literal in the
task: where pieces are of several lengths, no two tasks would be alike. A chunk that shows one
element may be of any length, so those of all pieces are pieces of one. xarray's sums without NaN
(`skipna=True`) have such zeros: sums of a week's windows were 292 tasks, and are 32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import Any

from gpusched.adapters.tasks import DataNode, Task, TaskRef, execute_subgraph
from gpusched.graph.functions.independence import Divided
from gpusched.graph.functions.partials import applied, is_shown, shows_one_element
from gpusched.graph.passes.table import Table
from gpusched.graph.subgraph import fused_into

Shape = tuple[int, ...]

MOST = 16
"""Ways in which shapes may be divided that are tried at most, where lengths are equal by chance."""


class ShownShapes:
    """Takes the shapes of such chunks out of tasks.

    Parameters
    ----------
    table
        The graph.

    Notes
    -----
    Goes by the identity of the graphs inside fused tasks, as long as the dask graph lives.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._shows: dict[int, bool] = {}

    def apart(self, node: Task) -> tuple[Task, dict[Any, Shape]]:
        """Return a task that takes such shapes as operands, and what these are by their keys.

        No literal is touched but the only argument of a call that makes a chunk of one element
        shown everywhere: a tuple that is a window's length, or an axis, stays part of the task.

        Examples
        --------
        >>> import dask.array as da, numpy as np
        >>> from gpusched.adapters.tasks import Task, TaskRef
        >>> from gpusched.graph.passes.shownshapes import ShownShapes
        >>> from gpusched.graph.passes.table import Table
        >>> zeros = da.zeros(3).dask
        >>> (key,) = zeros
        >>> fused = Task.fuse(zeros[key], Task("y", np.add, TaskRef("x"), TaskRef(key)))
        >>> task, shapes = ShownShapes(Table({}, [])).apart(fused)
        >>> shapes == {key: (3,) for key in task.dependencies - {"x"}}
        True
        """
        flat = self._table.inside(node) if self._inside(node) else None
        if flat is None:
            return node, {}
        shapes: dict[Any, Shape] = {}
        nodes = []
        for each in flat[0].values():
            shape = _shape_of(each)
            if shape is not None:
                name = "gpusched-shape", len(shapes)
                shapes[name] = shape
                each = Task(each.key, each.func, TaskRef(name))
            nodes.append(each)
        apart: Task = self._table.fused(nodes, node.key) if shapes else node
        return apart, shapes

    def _inside(self, node: Any) -> bool:
        """Return whether a task makes a chunk of one element, beside others."""
        if type(node) is not Task or node.func is not execute_subgraph:
            return False
        inner = node.args[0]
        found = self._shows.get(id(inner))
        if found is None:
            found = any(
                self._inside(each)
                or (type(each) is Task and len(each.args) == 1 and shows_one_element(each.func))
                for each in fused_into(node).values()
            )
            self._shows[id(inner)] = found
        return found


def _shape_of(node: Any) -> Shape | None:
    """Return the shape of a chunk of one element; None for what a task makes otherwise."""
    if type(node) is not Task or node.dependencies:
        return None
    function, args, kwargs = applied(node.func, node.args, node.kwargs)
    if not is_shown(function, args, kwargs):
        return None
    shape = args[0].value if type(args[0]) is DataNode else args[0]
    plain = type(shape) is tuple and all(type(n) is int and n >= 0 for n in shape)
    return shape if plain else None


def divisions(
    shapes: Sequence[Mapping[Any, Shape]], lengths: Sequence[Shape]
) -> Iterator[dict[Any, Divided | Shape]]:
    """Yield how chunks of one element may be pieces, by the keys of their shapes.

    Parameters
    ----------
    shapes
        Of the chunks in the task of each piece, by the same keys.
    lengths
        How long each piece is along the axes along which it is one.

    Yields
    ------
    dict
        By key, `Divided`, or the shape that chunks have in all tasks.

    Notes
    -----
    Each of these is right. Chunks are `Divided` along axes along which each is as long as the piece
    that it is beside, and as long as all others along the rest. So is one chunk as long as all
    pieces together, where it is cut as the pieces are; and it has the same element everywhere.
    Which axes are meant may be open where lengths are equal by chance: then what is computed with
    the chunks says so, or both give the same.

    Examples
    --------
    >>> from gpusched.graph.passes.shownshapes import divisions
    >>> list(divisions([{"s": (2, 4)}, {"s": (1, 4)}], [(2,), (1,)]))
    [{'s': Divided(ndim=2, axes=(0,))}]
    >>> list(divisions([{"s": (2, 4)}, {"s": (2, 4)}], [(3,), (1,)]))
    [{'s': (2, 4)}]
    """
    alike: dict[tuple[Shape, ...], list[Any]] = {}
    for key in shapes[0]:
        alike.setdefault(tuple([each[key] for each in shapes]), []).append(key)
    ways = [list(_ways(each, lengths)) for each in alike]
    for way in islice(product(*ways), MOST):
        yield {k: one for keys, one in zip(alike.values(), way, strict=True) for k in keys}


def _ways(shapes: Sequence[Shape], lengths: Sequence[Shape]) -> Iterator[Divided | Shape]:
    first = shapes[0]
    if any(len(each) != len(first) for each in shapes):
        return
    different = {axis for axis, each in enumerate(zip(*shapes, strict=True)) if len(set(each)) > 1}
    for axes in combinations(range(len(first)), len(lengths[0])):
        own = [tuple([shape[axis] for axis in axes]) for shape in shapes]
        if different <= {*axes} and own == [*lengths]:
            yield Divided(len(first), axes)
    if not different:
        yield first
