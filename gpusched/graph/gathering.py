"""Tasks that take many chunks out of batches, such as those that join all chunks of an array.

What joins 20,000 chunks of batches is a message of 8 KB so; with a task for each chunk in it, it
was one of 824 KB, and the whole computation took 16 % more processor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusched.adapters.tasks import Alias, DataNode, Dict, GraphNode, List, Task, TaskRef, Tuple
from gpusched.graph.batch import Batch
from gpusched.graph.segment import ProgramStep
from gpusched.plan.plan import Register, Spread


class _UnknownForm(Exception):
    """An argument that only dask itself knows how to fill."""


def gathered(task: Task, places: Mapping[Any, tuple[Any, int]]) -> Task | None:
    """Return a task that takes chunks out of batches, by a short description of which.

    Parameters
    ----------
    task
        The task as it takes them by their keys.
    places
        By a chunk's key: the key of its batch, and its number there.

    Returns
    -------
    Task or None
        None for a task of a form that cannot be described so.
    """
    gathering = _Gathering(places)
    try:
        args = tuple(gathering.argument(value) for value in task.args)
        kwargs = {name: gathering.argument(v) for name, v in task.kwargs.items()}
    except _UnknownForm:
        return None
    batch = Batch((ProgramStep(task.func, args, kwargs),), (0,))
    literals = DataNode(None, tuple(gathering.literals))
    inputs = map(TaskRef, gathering.inputs)
    return Task(task.key, batch, DataNode(None, (task.key,)), literals, *inputs,
                _data_producer=task.data_producer)  # fmt: skip


class _Gathering:
    def __init__(self, places: Mapping[Any, tuple[Any, int]]) -> None:
        self._places = places
        self.inputs: dict[Any, int] = {}
        self.literals: list[Any] = []

    def argument(self, value: Any) -> Any:
        """Return what stands for an argument; register 1 has the literals, 0 the result."""
        if type(value) is TaskRef:
            return self._reference(value.key)
        if type(value) is Alias:
            return self._reference(value.target)
        if type(value) is List:
            return self._items(value.args)
        if type(value) is Tuple:
            return tuple(map(self.argument, value.args))
        if type(value) is Dict and not any(isinstance(k, GraphNode) for k in value.args[::2]):
            return dict(zip(value.args[::2], map(self.argument, value.args[1::2]), strict=True))
        if isinstance(value, TaskRef) or (isinstance(value, GraphNode) and value.dependencies):
            raise _UnknownForm
        self.literals.append(value({}) if isinstance(value, GraphNode) else value)
        return Register(1, len(self.literals) - 1)

    def _reference(self, key: Any) -> Register:
        source, item = self._places.get(key, (key, None))
        return Register(self.inputs.setdefault(source, len(self.inputs) + 2), item)

    def _items(self, values: tuple[Any, ...]) -> Spread:
        """Return a list's items, those that follow each other in a batch together."""
        found = Spread()
        for value in values:
            item = self.argument(value)
            if type(item) is Register and item.item is not None:
                first, last = item.item, found[-1] if found else None
                if type(last) is Register and (last.number, _end(last)) == (item.number, first):
                    first = found.pop().item.start
                item = Register(item.number, slice(first, item.item + 1))
            found.append(item)
        return found


def _end(register: Register) -> Any:
    return register.item.stop if type(register.item) is slice else None
