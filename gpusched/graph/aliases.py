"""Other names of tasks -> the tasks' own keys, so that schedulers have no tasks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpusched.adapters.tasks import Alias, Task
from gpusched.graph.subgraph import result_key
from gpusched.graph.table import Table


def without_names(table: Table) -> Table:
    """Return a graph in which tasks have one key only.

    Tasks that dask has fused get the key of their result, which names the layer.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Alias, Task, TaskRef
    >>> from gpusched.graph.aliases import without_names
    >>> from gpusched.graph.table import Table
    >>> tasks = [Task("x", abs, -1), Alias("y", "x"), Alias("z", "y"), Task("a", abs, TaskRef("z"))]
    >>> without_names(Table({node.key: node for node in tasks}, ["a"])).tasks
    {'x': <Task 'x' abs(-1)>, 'a': <Task 'a' abs(TaskRef('x'))>}
    """
    tasks, asked = table.tasks, set(table.wanted)
    names: dict[Any, Any] = {}
    own = set()
    for key, node in tasks.items():
        if type(node) is Alias:
            target = tasks.get(node.target)
            if type(target) is Task and target.key not in asked and result_key(target) == key:
                names[target.key] = key
                own.add(key)
            elif key not in asked and node.target != key:
                names[key] = node.target
    if not names:
        return table
    names = _settled(names)
    result = {}
    for key, node in tasks.items():
        if type(node) is Alias and (key in names or key in own):
            continue
        name = names.get(key, key)
        used = {other: names[other] for other in node.dependencies if other in names}
        result[name] = node.substitute(used, key=name) if used or name != key else node
    return replace(table, tasks=result)


def _settled(names: dict[Any, Any]) -> dict[Any, Any]:
    """Return names of tasks only, instead of names of names."""
    found: dict[Any, Any] = {}
    for key in names:
        path: dict[Any, None] = {}
        while key in names and key not in found:
            if key in path:
                raise ValueError(f"{key!r} is another name of itself: the graph has no such task")
            path[key] = None
            key = names[key]
        found |= dict.fromkeys(path, found.get(key, key))
    return found
