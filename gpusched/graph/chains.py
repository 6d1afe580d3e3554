"""Tasks that only one other task needs, which needs nothing else -> part of that task.

dask fuses such chains, but for those that it comes upon from the side: a task that joins small
pieces of other chunks stays apart from the one that computes with what it joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from dask._task_spec import Task

from gpusched.graph.sizes import Sizes


def without_links(tasks: dict[Any, Any], wanted: Collection[Any], sizes: Sizes) -> dict[Any, Any]:
    """Return a graph without tasks that can be part of the only task that needs them.

    Parameters
    ----------
    tasks
        dask's nodes by key, optimised.
    wanted
        Keys of the results: they stay keys.
    sizes
        Of the chunks, which tells annotated ones.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> from gpusched.graph.chains import without_links
    >>> from gpusched.graph.sizes import Sizes
    >>> tasks = [Task("x", abs, -1), Task("y", abs, -2), Task("a", abs, TaskRef("both")),
    ...          Task("both", max, TaskRef("x"), TaskRef("y"))]
    >>> found = without_links({node.key: node for node in tasks}, {"a"}, Sizes({}))
    >>> sorted(found), sorted(found["a"].dependencies)
    (['a', 'x', 'y'], ['x', 'y'])
    """
    asked = set(wanted)
    users: Counter[Any] = Counter()
    for node in tasks.values():
        users.update(node.dependencies)
    links: dict[Any, Any] = {}
    for key, node in tasks.items():
        if len(node.dependencies) == 1 and _joins(node, sizes):
            (other,) = node.dependencies
            if users[other] == 1 and other not in asked and _joins(tasks.get(other), sizes):
                links[key] = other
    if not links:
        return tasks
    inner = set(links.values())
    result = {}
    for key, node in tasks.items():
        if key not in inner:
            chain = [node]
            while chain[0].key in links:
                chain.insert(0, tasks[links[chain[0].key]])
            result[key] = Task.fuse(*chain, key=key) if len(chain) > 1 else node
    return result


def _joins(node: Any, sizes: Sizes) -> bool:
    """Return whether a node may be part of another task, or have another one in it."""
    return type(node) is Task and not node.block_fusion and not sizes.is_annotated(node)
