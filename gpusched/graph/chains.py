"""Tasks that only one other task needs -> part of that task, if it needs nothing else or they join.

dask fuses chains, but for those that it comes upon from the side: a task that joins small pieces of
other chunks stays apart from the one that computes with what it joined. Where the same kernel can
read the pieces where they are, the joined chunk is then never made: see `gpusched.plan.unjoined`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from gpusched.adapters.tasks import Alias, Task, execute_subgraph
from gpusched.graph.absorbing import cuts
from gpusched.graph.rewrite import worthwhile
from gpusched.graph.sizes import Sizes
from gpusched.graph.table import Table
from gpusched.plan.grids import is_join


def without_links(table: Table, joins: bool = False) -> Table:
    """Return a graph without tasks that can be part of the only task that needs them.

    Parameters
    ----------
    table
        The graph.
    joins
        Whether tasks that join chunks become part of one that needs others beside, too, if it
        computes with functions that are recorded.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.chains import without_links
    >>> from gpusched.graph.table import Table
    >>> tasks = [Task("x", abs, -1), Task("y", abs, -2), Task("a", abs, TaskRef("both")),
    ...          Task("both", max, TaskRef("x"), TaskRef("y"))]
    >>> found = without_links(Table({node.key: node for node in tasks}, ["a"])).tasks
    >>> sorted(found), sorted(found["a"].dependencies)
    (['a', 'x', 'y'], ['x', 'y'])
    """
    tasks, users, sizes = table.tasks, table.users, table.sizes
    asked = {*table.wanted, *table.items}
    inside: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, node in tasks.items():
        needed = [k for k in node.dependencies if users[k] == 1 and k not in asked and k in tasks]
        if not needed or not _may_be_fused(node, sizes):
            continue
        if len(node.dependencies) == 1:
            inside[key] += [k for k in needed if _may_be_fused(tasks[k], sizes)]
        elif joins and worthwhile(node, table.functions):
            inside[key] += [
                k for k in needed if _may_be_fused(tasks[k], sizes) and _joins(tasks[k])
            ]
    inner = {k for each in inside.values() for k in each}
    if not inner:
        return table
    result = {}
    for key, node in tasks.items():
        if key not in inner:
            chain, waiting = [node], list(inside.get(key, ()))
            while waiting:
                other = waiting.pop()
                chain.append(tasks[other])
                waiting += inside.get(other, ())
            result[key] = Task.fuse(*reversed(chain), key=key) if len(chain) > 1 else node
    return replace(table, tasks=result)


def _may_be_fused(node: Any, sizes: Sizes) -> bool:
    """Return whether a node may be part of another task, or have another one in it."""
    return type(node) is Task and not node.block_fusion and not sizes.is_annotated(node)


def _joins(task: Task) -> bool:
    """Return whether a task joins chunks, and does nothing else but cut them."""
    if task.func is not execute_subgraph:
        return is_join(task.func)
    inner = [node for node in task.args[0].values() if type(node) is not Alias]
    if not all(type(node) is Task for node in inner):
        return False
    return any(map(_joins, inner)) and all(_joins(node) or cuts(node) for node in inner)
