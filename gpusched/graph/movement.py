"""Functions that only move elements: CuPy's arrays come out of them with the values of NumPy's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpusched.adapters.tasks import GraphNode, Task, execute_subgraph, is_container
from gpusched.graph.batch import Batch
from gpusched.graph.known import pieces
from gpusched.graph.partials import parts
from gpusched.graph.subgraph import layer_of
from gpusched.record.catalogue import has


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
    return all(has(part, "moves") for part in parts(function))


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
    return has(function, "picks") and not all(map(_is_basic, args[1:]))


def _is_basic(index: Any) -> bool:
    if type(index) is tuple:
        return all(map(_is_basic, index))
    if index is None or index is Ellipsis:
        return True
    return isinstance(index, int | np.integer | slice) and type(index) is not bool


def calls_in(node: Any, layer: str = "") -> Iterator[tuple[Any, Sequence[Any], str]]:
    """Yield the functions that a task of dask's calls, those inside of it included.

    Each comes with its positional arguments as dask has them, or as a batch has, and with its
    layer.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, Task, TaskRef
    >>> from gpusched.graph.movement import calls_in
    >>> task = Task("x", max, List(TaskRef("a"), Task(None, abs, TaskRef("b"))))
    >>> [function for function, *_ in calls_in(task)] == [abs, max]
    True
    >>> list(calls_in(Task("x", max, 1, 2))) == [(max, (1, 2), "x")]
    True
    """
    if not isinstance(node, Task):
        return
    layer = layer if node.key is None else layer_of(node.key)
    values: list[Any] = [*node.args, *node.kwargs.values()]
    if node.func is execute_subgraph:
        inner, _, _, *values = node.args
        values += inner.values()
    for value in values:
        if isinstance(value, GraphNode):
            yield from calls_in(value, layer)
    if type(node.func) is Batch:
        yield from ((step.function, step.args, layer) for step in node.func.steps)
    elif node.func is not execute_subgraph and not is_container(node):
        yield node.func, node.args, layer
