"""dask's tasks, which optimised graphs consist of: `dask.task_spec`, and what it does not export.

Six classes are public (https://github.com/dask/dask/pull/11675). The others were left private with
the module: https://github.com/dask/dask/pull/11248.
"""

from __future__ import annotations

from typing import Any

try:
    # Around each task of an array that is given to `dask.delayed`.
    from dask._expr import ProhibitReuse

    # Containers of keys in arguments (Dict, NestedContainer, Tuple), which `gpusched.graph` goes
    # through and makes; layers may still have tuples for tasks, and keys in arguments (the rest).
    from dask._task_spec import Dict, NestedContainer, Tuple, convert_legacy_graph, parse_input

    # The function of a task that runs several others, as dask's own fusion makes it.
    from dask._task_spec import _execute_subgraph as execute_subgraph

    # The function that containers are tasks of.
    from dask._task_spec import _identity_cast as identity_cast
    from dask.task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef
except ImportError as error:
    from gpusched.adapters.tested_releases import moved

    raise moved(error) from error

renamed = ProhibitReuse._identity
"""What the tasks of an array that is given to `dask.delayed` call, under other keys."""


def is_container(value: Any) -> bool:
    """Return whether a value is a list, tuple, set or dict of nodes, in either of dask's forms.

    dask makes a class of its own of containers, or a task, where it converts a layer of tuples.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, Task, TaskRef, identity_cast, is_container
    >>> is_container(List(TaskRef("a"))), is_container(Task("x", abs, TaskRef("a")))
    (True, False)
    >>> is_container(Task(None, identity_cast, TaskRef("a"), typ=list))
    True
    """
    return isinstance(value, NestedContainer) or getattr(value, "func", None) is identity_cast


def is_list(value: Any) -> bool:
    """Return whether a value is a list of nodes, in either of dask's forms.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, Task, TaskRef, Tuple, identity_cast, is_list
    >>> is_list(List(TaskRef("a"))), is_list(Tuple(TaskRef("a")))
    (True, False)
    >>> is_list(Task(None, identity_cast, TaskRef("a"), typ=list))
    True
    """
    if type(value) is not Task:
        return isinstance(value, List)
    return value.func is identity_cast and value.kwargs.get("typ") is list


__all__ = [
    "Alias",
    "DataNode",
    "Dict",
    "GraphNode",
    "List",
    "NestedContainer",
    "Task",
    "TaskRef",
    "Tuple",
    "convert_legacy_graph",
    "execute_subgraph",
    "identity_cast",
    "is_container",
    "is_list",
    "parse_input",
    "renamed",
]
