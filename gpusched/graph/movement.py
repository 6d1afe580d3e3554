"""Functions that only move elements: CuPy's arrays come out of them with the values of NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from dask.array import chunk, core
from dask.utils import methodcaller

from gpusched.adapters.arrays import concatenate2, concatenate_arrays, take, trim
from gpusched.adapters.tasks import (
    GraphNode,
    NestedContainer,
    Task,
    execute_subgraph,
    identity_cast,
)
from gpusched.graph.batch import Batch, part
from gpusched.graph.known import enforced, pieces, together
from gpusched.graph.quick import parts
from gpusched.record.recorded import one_of

KEEPING = (
    operator.getitem, chunk.getitem, np.concatenate, core.concatenate3, core.concatenate_axes,
    core.concatenate_shaped, concatenate2, np.transpose, np.squeeze, np.expand_dims,
    np.reshape,
)  # fmt: skip
"""Functions whose result has no more elements than what they take."""

_TABLE = frozenset([
    *KEEPING, np.broadcast_to, np.moveaxis, np.swapaxes, np.rollaxis, np.flip, np.flipud, np.fliplr,
    np.repeat, np.tile, np.roll, np.stack, np.ravel, np.atleast_1d, np.atleast_2d,
    chunk.trim, trim, take, concatenate_arrays, enforced, together, pieces, one_of, part,
    *map(methodcaller, ("reshape", "transpose", "ravel", "repeat", "squeeze")),
])  # fmt: skip


def moves_elements(function: Any) -> bool:
    """Return whether a function only moves elements, or what it is composed of does.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.movement import moves_elements
    >>> moves_elements(partial(np.transpose, axes=(1, 0))), moves_elements(np.sort)
    (True, False)
    """
    return all(_is_listed(part) for part in parts(function))


def _is_listed(function: Any) -> bool:
    try:
        return function in _TABLE
    except TypeError:
        return False


_PICKING = operator.getitem, chunk.getitem


def picks(function: Any, args: Sequence[Any]) -> bool:
    """Return whether a call takes elements by arrays or lists of indices, as far as can be seen.

    CuPy's arrays raise no error for such an index that is too large. dask's own `_shuffle` has
    looked at its indices.

    Examples
    --------
    >>> import operator
    >>> from gpusched.graph.movement import picks
    >>> picks(operator.getitem, ("x", (slice(3), None, 2))), picks(operator.getitem, ("x", [1, 2]))
    (False, True)
    """
    if function is pieces:
        return not all(_is_basic(index) for cuts in args[1] for _, index in cuts)
    return any(function is each for each in _PICKING) and not all(map(_is_basic, args[1:]))


def _is_basic(index: Any) -> bool:
    if type(index) is tuple:
        return all(map(_is_basic, index))
    if index is None or index is Ellipsis:
        return True
    return isinstance(index, int | np.integer | slice) and type(index) is not bool


def calls_in(node: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yield the functions that a task of dask's calls, those inside of it included.

    Each comes with its positional arguments as dask has them, or as a batch has.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, Task, TaskRef
    >>> from gpusched.graph.movement import calls_in
    >>> task = Task("x", max, List(TaskRef("a"), Task(None, abs, TaskRef("b"))))
    >>> [function for function, _ in calls_in(task)] == [max, abs]
    True
    >>> list(calls_in(Task("x", max, 1, 2))) == [(max, (1, 2))]
    True
    """
    if not isinstance(node, Task):
        return
    values: list[Any] = [*node.args, *node.kwargs.values()]
    if node.func is execute_subgraph:
        inner, _, _, *values = node.args
        yield from (each for part in inner.values() for each in calls_in(part))
    elif type(node.func) is Batch:
        yield from ((step.function, step.args) for step in node.func.steps)
    elif not isinstance(node, NestedContainer) and node.func is not identity_cast:
        yield node.func, node.args
    for value in values:
        if isinstance(value, GraphNode):
            yield from calls_in(value)
