"""Items of a task's result -> taken out by the tasks that need them, not by tasks of their own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dask._task_spec import Task


def taken_inside(tasks: dict[Any, Any], items: Collection[Any]) -> dict[Any, Any]:
    """Return a graph in which tasks take some items of others' results themselves.

    Where one is small, moving the whole result costs less than a task that takes it out.

    Parameters
    ----------
    tasks
        dask's nodes by key.
    items
        Keys of tasks that do nothing but take an item out, and that nobody else asks for.
    """
    if not items:
        return tasks
    kept = {k for node in tasks.values() if type(node) is not Task for k in node.dependencies}
    inside = {key: tasks[key] for key in items if key not in kept}
    result = {key: node for key, node in tasks.items() if key not in inside}
    for key, node in result.items():
        taken = sorted(inside.keys() & node.dependencies, key=str)
        if taken:
            result[key] = Task.fuse(*map(inside.__getitem__, taken), node, key=key)
    return result
