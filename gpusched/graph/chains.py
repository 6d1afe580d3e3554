"""Tasks that only one other task needs -> part of that task, if it needs nothing else or they join.

dask fuses chains, but for those that it comes upon from the side: a task that joins small pieces of
other chunks stays apart from the one that computes with what it joined. Where the same kernel can
read the pieces where they are, the joined chunk is then never made: see `gpusched.plan.unjoined`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gpusched.adapters.tasks import Alias, Task, execute_subgraph
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.absorbing import cuts
from gpusched.graph.rewrite import worthwhile
from gpusched.graph.table import ANNOTATED, Table
from gpusched.plan.grids import is_join

NEEDED = GraphBreak.READ_WHOLE("joined chunks that functions need which are not recorded")


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
