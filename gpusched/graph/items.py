"""Items of a task's result -> taken out by the tasks that need them, not by tasks of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import getitem
from typing import Any

from gpusched.adapters.tasks import Alias, Task, TaskRef
from gpusched.graph.batch import part
from gpusched.graph.gathering import gathered

MANY = 32
"""Items from which on a task takes them by `gathered`."""


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
