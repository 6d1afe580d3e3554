"""Functions that only move elements: CuPy's arrays come out of them with the values of NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Iterator
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
from gpusched.fusion.recorded import one_of
from gpusched.graph.known import enforced, together
from gpusched.graph.quick import parts

KEEPING = (
    operator.getitem, chunk.getitem, np.concatenate, core.concatenate3, core.concatenate_axes,
    core.concatenate_shaped, concatenate2, np.transpose, np.squeeze, np.expand_dims,
    np.reshape,
)  # fmt: skip
"""Functions whose result has no more elements than what they take."""

_TABLE = frozenset([
    *KEEPING, np.broadcast_to, np.moveaxis, np.swapaxes, np.rollaxis, np.flip, np.flipud, np.fliplr,
    np.repeat, np.tile, np.roll, np.stack, np.take, np.ravel, np.atleast_1d, np.atleast_2d,
    chunk.trim, trim, take, concatenate_arrays, enforced, together,
    one_of, *map(methodcaller, ("reshape", "transpose", "ravel", "repeat", "take", "squeeze")),
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


def functions_of(node: Any) -> Iterator[Any]:
    """Yield the functions that a task of dask's calls, those inside of it included.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, Task, TaskRef
    >>> from gpusched.graph.movement import functions_of
    >>> task = Task("x", max, List(TaskRef("a"), Task(None, abs, TaskRef("b"))))
    >>> list(functions_of(task)) == [max, abs]
    True
    """
    if not isinstance(node, Task):
        return
    values: list[Any] = [*node.args, *node.kwargs.values()]
    if node.func is execute_subgraph:
        inner, _, _, *values = node.args
        yield from (each for part in inner.values() for each in functions_of(part))
    elif not isinstance(node, NestedContainer) and node.func is not identity_cast:
        yield node.func
    for value in values:
        if isinstance(value, GraphNode):
            yield from functions_of(value)
