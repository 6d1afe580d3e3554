"""What two tasks must have in common to be gone through only once."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.adapters.tasks import Alias, DataNode, GraphNode, Task, TaskRef, execute_subgraph

Signature = tuple[Any, ...]
_PLAIN = frozenset([int, bool, str, type(None)])
"""Types of constants that are equal only if they are the same."""


class Signatures:
    """Identifies tasks of one graph by what they call, and lists their arguments.

    Notes
    -----
    Goes by the identity of functions and of the graphs inside fused tasks: it holds as long as
    the dask graph lives, and no longer.
    """

    def __init__(self) -> None:
        self._inner: dict[int, _Inside] = {}
        self._numbers: dict[Signature, int] = {}

    def of(self, node: Any) -> tuple[Signature, list[Any]]:
        """Return a task's signature, and its inputs: keys as `TaskRef`, and literals.

        Tasks of one signature whose inputs are of the same kinds do the same.
        """
        inputs: list[Any] = []
        signature = self._value(node, inputs)
        keys = [item.key for item in inputs if type(item) is TaskRef]
        if len(keys) > 1 and len(set(keys)) < len(keys):
            # A chunk that is given twice is read once.
            signature = signature, tuple(map(keys.index, keys))
        return signature, inputs

    def _value(self, value: Any, inputs: list[Any]) -> Any:
        kind = type(value)
        if kind is TaskRef:
            inputs.append(value)
            return TaskRef
        if kind in _PLAIN:
            return kind, value
        if kind is DataNode:
            return self._literal(value.value, inputs)
        if kind is Task:
            return self._task(value, inputs)
        if kind is Alias:
            inputs.append(TaskRef(value.target))
            return TaskRef
        if isinstance(value, TaskRef):
            # A future refers to a key as well.
            inputs.append(TaskRef(value.key))
            return TaskRef
        if isinstance(value, Task):  # a container
            items = tuple([self._value(item, inputs) for item in value.args])
            return kind, items
        if isinstance(value, GraphNode):
            return kind, id(value)
        return self._literal(value, inputs)

    def _task(self, task: Task, inputs: list[Any]) -> Any:
        if task.func is execute_subgraph:
            return self._fused(task, inputs)
        args = tuple([self._value(item, inputs) for item in task.args])
        if not task.kwargs:
            return id(task.func), args
        named = tuple([(k, self._value(item, inputs)) for k, item in task.kwargs.items()])
        return id(task.func), args, named

    def _fused(self, task: Task, inputs: list[Any]) -> Any:
        inner, wanted, keys, *values = task.args
        found = self._inner.get(id(inner))
        if found is None:
            found = _Inside(self, inner, keys)
            found.number = self._numbers.setdefault(found.signature, len(self._numbers))
            if not isinstance(wanted, tuple):
                # Fused by layers, so it is that of other tasks as well.
                self._inner[id(inner)] = found
        outer = [self._value(values[k], inputs) for k in found.used]
        inputs += found.literals
        # A number, since signatures are hashed for each task, and this one may be long.
        return execute_subgraph, found.number, found.places.get(wanted), *outer

    def _literal(self, value: Any, inputs: list[Any]) -> Any:
        kind = type(value)
        if kind is float:
            return kind, value.hex()
        if kind in _PLAIN or (kind is tuple and all([type(item) is int for item in value])):
            return kind, value
        if callable(value) and not isinstance(value, np.ndarray):
            return id(value)
        inputs.append(value)
        return kind


class _Inside:
    """The graph inside a fused task, which many tasks may share.

    What comes from outside is numbered in the order of its use: dask lists it in no order.
    """

    def __init__(
        self, signatures: Signatures, inner: dict[Any, Any], keys: tuple[Any, ...]
    ) -> None:
        self.places = {key: k for k, key in enumerate(inner)}
        outer = {key: k for k, key in enumerate(keys)}
        self.used: list[int] = []
        self.literals: list[Any] = []
        parts = []
        for node in inner.values():
            inputs: list[Any] = []
            parts.append(signatures._value(node, inputs))
            for item in inputs:
                if type(item) is not TaskRef:
                    self.literals.append(item)
                elif item.key in self.places:
                    parts.append(self.places[item.key])
                else:
                    number = outer[item.key]
                    if number not in self.used:
                        self.used.append(number)
                    parts.append(-1 - self.used.index(number))
        self.signature: Signature = tuple(parts)
        self.number = 0
        """Equal for equal signatures."""
