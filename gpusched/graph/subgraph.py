"""Tasks that dask has fused into one: how to go through those inside, in an order that works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask._task_spec import Task


def walk(task: Task, outer: Any, argument: Callable[[Any, Any], Any]) -> Any:
    """Return what `argument` makes of the task inside whose result is the fused task's.

    Parameters
    ----------
    task
        One that calls dask's ``_execute_subgraph``.
    outer
        What is known outside, by key.
    argument
        Called with a node or an argument, and what is known where it stands, by key; with every
        task inside after those it depends on.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> from gpusched.graph.subgraph import walk
    >>> first, last = Task("a", abs, TaskRef("x")), Task("b", max, TaskRef("a"), 3)
    >>> def call(value, known):
    ...     if isinstance(value, TaskRef):
    ...         return known[value.key]
    ...     if not isinstance(value, Task):
    ...         return value
    ...     return value.func(*(call(item, known) for item in value.args))
    >>> walk(Task.fuse(first, last), {"x": -5}, call)
    5
    """
    inner, wanted, keys, *given = task.args
    known = {key: argument(value, outer) for key, value in zip(keys, given, strict=True)}

    def value_of(key: Any) -> Any:
        if key not in known:
            node = inner[key]
            for dependency in sorted(node.dependencies & inner.keys(), key=str):
                value_of(dependency)
            known[key] = argument(node, known)
        return known[key]

    return value_of(wanted)
