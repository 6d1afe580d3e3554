"""dask tasks as data: what the tasks of a layer have in common is a program, the rest its inputs.

A program is a list of calls, whose arguments may be its inputs and the results of earlier calls.
In a file it reads like this::

    {"steps": [{"call": {"function": "operator.add"}, "args": [{"input": 0}, 1], "kwargs": []}],
     "result": {"step": 0}}

and a task like this: its key, the number of its program, and the inputs::

    [["add-5f0c", 0, 1], 0, [{"key": ["ones-77a1", 0, 1]}]]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusched.adapters.tasks import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    List,
    NestedContainer,
    Task,
    TaskRef,
    Tuple,
    execute_subgraph,
    identity_cast,
)
from gpusched.graph import subgraph
from gpusched.graph.functions.partials import name_of
from gpusched.saving.code import refuse
from gpusched.saving.errors import UnsavableError
from gpusched.saving.values import Encoder

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.dtype, type)


def encode_tasks(graph: Mapping[Any, Any], encoder: Encoder) -> dict[str, Any]:
    """Return the tasks of a graph as programs and their inputs.

    Raises `UnsavableError` if a file cannot carry a task; the message has its key.

    Returns
    -------
    dict
        ``programs`` and ``tasks``, as JSON can hold them.

    Examples
    --------
    >>> import operator
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.saving.saved_programs import encode_tasks
    >>> from gpusched.saving.values import Encoder
    >>> found = encode_tasks({"y": Task("y", operator.add, TaskRef("x"), 1)}, Encoder())
    >>> found["tasks"]
    [['y', 0, [{'key': 'x'}]]]
    """
    programs: list[Any] = []
    numbers: dict[str, int] = {}
    tasks = []
    for key, node in graph.items():
        translation = _Translation(encoder, f"task {key!r}")
        result = translation.argument(node, {})
        program = {"steps": translation.steps, "result": result}
        number = numbers.setdefault(json.dumps(program), len(programs))
        if number == len(programs):
            programs.append(program)
        tasks.append([encode_key(key), number, translation.inputs])
    return {"programs": programs, "tasks": tasks}


def encode_key(key: Any) -> Any:
    """Return a key as JSON: a tuple is a list there.

    Raises `UnsavableError` if a key is neither text nor a tuple of text and numbers.
    """
    if type(key) is str:
        return key
    if type(key) is tuple and key and type(key[0]) is str:
        items = [item.item() if isinstance(item, np.generic) else item for item in key]
        if all(type(item) in (str, int, float) for item in items):
            return items
    raise UnsavableError(
        f"task {key!r}: a key of this form cannot be saved: use text, or a tuple of text and "
        "numbers"
    )


class _Translation:
    """Collects the calls and inputs of one task, as JSON."""

    def __init__(self, encoder: Encoder, place: str) -> None:
        self.encoder = encoder
        self.place = place
        self.inputs: list[Any] = []
        self.steps: list[Any] = []
        self._references: dict[Any, Any] = {}

    def argument(self, value: Any, inner: dict[Any, Any]) -> Any:
        """Return an argument; `inner` says what the keys inside a fused task stand for."""
        if isinstance(value, TaskRef):
            refuse(value, self.place)  # a Future is one, too
            return self._reference(value.key, inner)
        if isinstance(value, Alias):
            return self._reference(value.target, inner)
        if isinstance(value, DataNode):
            return self._literal(value.value)
        if isinstance(value, List | Tuple | Dict):
            return self._container(value, inner)
        if isinstance(value, Task) and not isinstance(value, NestedContainer):
            return self._task(value, inner)
        if isinstance(value, GraphNode):
            told = f"a {type(value).__name__} of tasks cannot be saved: make a list of them"
            raise UnsavableError(f"{self.place}: {told}")
        return self._literal(value)

    def _task(self, task: Task, inner: dict[Any, Any]) -> Any:
        if task.func is execute_subgraph:
            return subgraph.walk(task, inner, self.argument)
        if task.func is identity_cast and task.kwargs["typ"] in (list, tuple):
            items = [self.argument(item, inner) for item in task.args]
            return items if task.kwargs["typ"] is list else {"tuple": items}
        args = [self.argument(item, inner) for item in task.args]
        kwargs = [[name, self.argument(item, inner)] for name, item in task.kwargs.items()]
        place = f"{self.place}, which calls {name_of(task.func)}"
        call = self.encoder.value(task.func, place)
        self.steps.append({"call": call, "args": args, "kwargs": kwargs})
        return {"step": len(self.steps) - 1}

    def _container(self, value: Any, inner: dict[Any, Any]) -> Any:
        items = [self.argument(item, inner) for item in value.args]
        if isinstance(value, List):
            return items
        if isinstance(value, Tuple):
            return {"tuple": items}
        return {"dict": [list(pair) for pair in zip(items[::2], items[1::2], strict=True)]}

    def _reference(self, key: Any, inner: dict[Any, Any]) -> Any:
        if key in inner:
            return inner[key]
        if key not in self._references:
            self._references[key] = self._input({"key": encode_key(key)})
        return self._references[key]

    def _literal(self, value: Any) -> Any:
        encoded = self.encoder.value(value, self.place)
        return encoded if _constant(value) else self._input(encoded)

    def _input(self, encoded: Any) -> Any:
        self.inputs.append(encoded)
        return {"input": len(self.inputs) - 1}


def _constant(value: Any) -> bool:
    """Return whether a value is part of the program: all tasks of a layer have the same then."""
    if type(value) in (tuple, list):
        return all(map(_constant, value))
    if type(value) is dict:
        return all(map(_constant, value)) and all(map(_constant, value.values()))
    return isinstance(value, _CONSTANTS) or callable(value)
