"""How many tasks a graph has once tiny neighbours are in batches, and why others are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import dask
from dask.array.core import finalize

from gpusched.adapters.tasks import List, Task, TaskRef
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.passes.batching import ALL, batched
from gpusched.graph.passes.grouping import limits
from gpusched.graph.passes.items import taken_inside
from gpusched.graph.passes.table import Table
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.rewrite import rewrite
from gpusched.inspection.task_contents import layer_of
from gpusched.quantities import count


@dataclass(frozen=True)
class Batches:
    """What becomes of the tasks when all chunks of the results are joined, as `compute` does it."""

    tasks: int = 0
    """Tasks with neighbours in batches; those that join all chunks of an array are not counted."""
    batches: int = 0
    reasons: tuple[tuple[Reason, int], ...] = ()
    """Why tasks are not in batches, and how many of them."""

    def __str__(self) -> str:
        why = "; ".join(f"{count(number, 'task')}: {reason}" for reason, number in self.reasons)
        if not self.batches:
            return f"No tasks are put into batches: {why}." if why else ""
        rest = f" Not in batches: {why}." if why else ""
        batches = count(self.batches, "batch", "batches")
        return f"`compute` runs {count(self.tasks, 'task')}: {batches} of tiny neighbours.{rest}"


def batches(table: Table) -> Batches:
    """Return what batching makes of a graph, see `gpusched.graph.passes.batching`.

    Parameters
    ----------
    table
        The graph without the tasks that join the chunks of results.
    """
    if dask.config.get("optimization.fuse.active") is False:
        count_ = sum(isinstance(node, Task) for node in table.tasks.values())
        return Batches(
            count_, 0, ((GraphBreak.FEW_TASKS("optimization.fuse.active is False"), count_),)
        )
    joins = {**table.joins, **_joins(table)}
    whole = replace(table, tasks={**table.tasks, **joins}, wanted=[*joins], joins={},
                    apart=Counter())  # fmt: skip
    found = batched(rewrite(whole.tasks, whole.functions, whole.wanted), whole, limits())
    functions = [getattr(node, "func", None) for node in found.values()]
    number = sum(type(each) is Program and each.is_batch for each in functions)
    reasons = [(why, times) for (_, why), times in whole.apart.most_common() if why != ALL]
    ran = taken_inside(found, table.items).values()
    after = sum(isinstance(node, Task) for node in ran) - len(joins)
    return Batches(after, number, tuple(reasons))


def _joins(table: Table) -> dict[Any, Task]:
    """Return tasks that join what is wanted and no other task joins, by key."""
    read = set().union(*(node.dependencies for node in table.joins.values()))
    by_name: dict[str, list[TaskRef]] = {}
    for key in sorted({*table.wanted} - read, key=_position):
        by_name.setdefault(layer_of(key), []).append(TaskRef(key))
    joins = [Task(f"gpusched-{name}", finalize, List(*refs)) for name, refs in by_name.items()]
    return {node.key: node for node in joins}


def _position(key: Any) -> tuple[str, tuple[Any, ...]]:
    """Return what puts neighbours side by side."""
    return (str(key[0]), key[1:]) if isinstance(key, tuple) else (str(key), ())
