"""Tasks that need not be tasks of their own: other names of tasks, and links of chains.

Schedulers have no tasks for names. A task that only one other task needs becomes part of that task,
if it needs nothing else or they join.

dask fuses chains, but for those that it comes upon from the side: a task that joins small pieces of
other chunks stays apart from the one that computes with what it joined. Where the same kernel can
read the pieces where they are, the joined chunk is then never made: see `gpusched.plan.unjoined`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from gpusched.adapters.tasks import Alias, Task, execute_subgraph
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.absorbing import cuts
from gpusched.graph.rewrite import worthwhile
from gpusched.graph.subgraph import result_key
from gpusched.graph.table import ANNOTATED, Table
from gpusched.plan.grids import is_join

NEEDED = GraphBreak.READ_WHOLE("joined chunks that functions need which are not recorded")


def without_names(table: Table) -> Table:
    """Return a graph in which tasks have one key only.

    Tasks that dask has fused get the key of their result, which names the layer.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Alias, Task, TaskRef
    >>> from gpusched.graph.chains import without_names
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
    tasks, users, sizes, functions = table.tasks, table.users, table.sizes, table.functions
    asked = {*table.wanted, *table.items}
    inside: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, node in tasks.items():
        needed = [k for k in node.dependencies if users[k] == 1 and k not in asked and k in tasks]
        # Data and other names of results are no tasks, and what one of several operands takes time
        # for is computed beside the others: nothing is refused there.
        needed = [k for k in needed if type(tasks[k]) is Task] if type(node) is Task else []
        if len(node.dependencies) > 1:
            needed = [k for k in needed if joins and _joins(tasks[k])]
        for k in needed:
            reason: Reason | None = None
            if sizes.is_annotated(node) or sizes.is_annotated(tasks[k]):
                reason = ANNOTATED
            elif len(node.dependencies) > 1 and not worthwhile(node, functions):
                reason = NEEDED
            if reason is None:
                inside[key].append(k)
            elif joins:  # The last time that this pass goes over a graph.
                table.note("chain", reason)
    return table.with_inside(inside)


def _joins(task: Task) -> bool:
    """Return whether a task joins chunks, and does nothing else but cut them."""
    if task.func is not execute_subgraph:
        return is_join(task.func)
    inner = [node for node in task.args[0].values() if type(node) is not Alias]
    if not all(type(node) is Task for node in inner):
        return False
    return any(map(_joins, inner)) and all(_joins(node) or cuts(node) for node in inner)
