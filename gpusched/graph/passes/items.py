"""Items of a task's result -> taken out by the tasks that need them, not by tasks of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import getitem
from typing import Any

from gpusched.adapters.tasks import Alias, DataNode, GraphNode, List, Task, TaskRef
from gpusched.graph.running.batch import Batch, part
from gpusched.plan.plan import Register, Spread
from gpusched.record.steps import ProgramStep

MANY = 32
"""Items from which on a task takes them by `gathered`.

What joins 20,000 chunks of batches is a message of 8 KB so; with a task for each chunk in it, it
was one of 824 KB, and the whole computation took 16 % more processor time."""


def taken_inside(tasks: dict[Any, Any], items: Collection[Any]) -> dict[Any, Any]:
    """Return a graph in which tasks take some items of others' results themselves.

    Parameters
    ----------
    tasks
        dask's nodes by key, rewritten: what is recorded is given the item, and never sees the rest.
    items
        Keys of tasks that do nothing but take an item out, and that only tasks ask for.
    """
    places = {}
    for key in items:
        node = tasks.get(key)
        if type(node) is Task and node.func is getitem:
            source, index = node.args
            places[key] = source.key, index
    if not places:
        return tasks
    result = {}
    for key, node in tasks.items():
        if key not in places:
            taken = {k: places[k] for k in node.dependencies if k in places}
            result[key] = taking(node, taken) if taken else node
    return result


def taking(node: Any, places: Mapping[Any, tuple[Any, int]]) -> Any:
    """Return a task that takes some of its operands out of others' results.

    Parameters
    ----------
    node
        The task, or another name of such an operand.
    places
        By an operand's key: the key of a task with several results, and which of them it is.
    """
    if len(places) > MANY and type(node) is Task:
        found = gathered(node, places)
        if found is not None:
            return found
    taken = {key: Task(key, part, TaskRef(source), k) for key, (source, k) in places.items()}
    if type(node) is Alias:
        return taken[node.target].substitute({}, key=node.key)
    return node.substitute(taken)


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
        if type(value) is List:
            return self._items(value.args)
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
