"""Tasks that make what was asked for of all its chunks.

dask adds one for each collection that is computed. That of an array joins its chunks; that of an
xarray object joins those of each of its arrays, and builds the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask.array.core import finalize

from gpusched.adapters import xarray
from gpusched.adapters.tasks import List, Task


def joined(node: Any) -> Sequence[Any]:
    """Return the nested lists of chunks that a task joins, array by array.

    Parameters
    ----------
    node
        One of dask's nodes.

    Returns
    -------
    sequence
        Empty if the node does something else.

    Examples
    --------
    >>> from dask.array.core import finalize
    >>> from dask.task_spec import List, Task, TaskRef
    >>> from gpusched.graph.passes.joins import joined
    >>> joined(Task("finalize-1f3a", finalize, List(TaskRef(("add", 0)), TaskRef(("add", 1)))))
    [List((TaskRef(('add', 0)), TaskRef(('add', 1))))]
    """
    if type(node) is not Task or not node.args or node.kwargs:
        return []
    if node.func is finalize:
        return [node.args[0]] if len(node.args) == 1 else []
    return xarray.nested_chunks(node.func, node.args) or []


def with_chunks(node: Task, chunks: Sequence[Any]) -> Task:
    """Return a task that joins other chunks.

    Parameters
    ----------
    node
        A task that joins chunks.
    chunks
        Nested lists of them, array by array.
    """
    old, *rest = node.args
    # An xarray object's are in a list of their own.
    apart = xarray.nested_chunks(node.func, node.args)
    new = chunks[0] if apart is None or apart[0] is old else List(*chunks)
    return Task(node.key, node.func, new, *rest)
