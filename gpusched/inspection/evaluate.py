"""Runs a task of dask's as dask does, and does something else where that calls functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusched.adapters.tasks import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    NestedContainer,
    Task,
    TaskRef,
    execute_subgraph,
    identity_cast,
)
from gpusched.graph import subgraph

Call = Callable[[Any, list[Any], dict[str, Any], Any], Any]
"""Takes a function, its arguments, and the key of the task that calls it."""


def evaluate(value: Any, values: Mapping[Any, Any], call: Call, key: Any = None) -> Any:
    """Return the result of a task, or the value of one of its arguments.

    Parameters
    ----------
    value
        A node of a graph, or an argument of one.
    values
        By key, what it depends on.
    call
        What is done for each call.
    key
        Of the task that `value` is an argument of.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.inspection.evaluate import evaluate
    >>> task = Task("y", max, TaskRef("x"), 3)
    >>> evaluate(task, {"x": 5}, lambda function, args, kwargs, key: (function.__name__, args))
    ('max', [5, 3])
    """
    if isinstance(value, TaskRef):
        return values[value.key]
    if not isinstance(value, GraphNode):
        return value
    if isinstance(value, DataNode):
        return value.value
    if isinstance(value, Alias):
        return values[value.target]
    if not isinstance(value, Task):
        raise TypeError(f"a task of the kind {type(value).__name__}")
    key = value.key if value.key is not None else key
    if value.func is execute_subgraph:
        return subgraph.walk(value, values, lambda item, known: evaluate(item, known, call, key))
    args = [evaluate(item, values, call, key) for item in value.args]
    if isinstance(value, Dict):
        return dict(zip(args[::2], args[1::2], strict=True))
    if isinstance(value, NestedContainer):
        return value.klass(args)
    kwargs = {name: evaluate(item, values, call, key) for name, item in value.kwargs.items()}
    if value.func is identity_cast:
        return kwargs["typ"](args)
    return call(value.func, args, kwargs, key)
