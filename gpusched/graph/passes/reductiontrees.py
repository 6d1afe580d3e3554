"""The trees by which dask joins what first steps of a reduction leave of chunks.

Steps after the first one take however many results there are, so a tree of results of pieces may as
well be one step on the results of the chunks that the pieces are of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.graph.functions.partials import bare
from gpusched.graph.functions.reductionsteps import (
    Step,
    is_step,
    step_of,
    steps_after,
    with_results,
)
from gpusched.graph.passes.table import Table
from gpusched.graph.subgraph import fused_into, last_task


@dataclass(frozen=True)
class Tree:
    """A task that joins results of first steps, by other tasks or alone."""

    root: Any
    """Its key."""
    step: Step
    """How it ends."""
    between: list[Any]
    """Keys of the other tasks."""
    leaves: list[Any]
    """Keys of the first steps' results."""

    def joining(self, table: Table, results: Sequence[Any]) -> Any:
        """Return the task that joins other results itself, by their keys."""
        flat = table.inside(table.tasks[self.root])
        assert flat is not None
        inner = dict(flat[0])
        instead: dict[Any, list[Any]] = {item: [] for item in self.step.items}
        instead[self.step.items[0]] = [*results]
        inner[self.root] = with_results(inner[self.root], instead)
        return table.fused(list(inner.values()), self.root)


def trees_of(table: Table, firsts: Mapping[Any, Any]) -> Iterator[Tree]:
    """Yield trees that join what alike first steps leave, each of it once.

    Parameters
    ----------
    table
        The graph.
    firsts
        First steps of reductions, by the keys of the tasks that end with them.
    """
    tops: dict[Any, Step] = {}
    alone: dict[Any, Step] = {}
    for key, node in table.tasks.items():
        flat = table.inside(node) if is_step(last_task(node)) else None
        step = None if flat is None else step_of(flat[0][flat[1]])
        if step is not None:
            tops[key] = step
            if step.keepdims and not fused_into(node) and _may_go(table, key):
                alone[key] = step
    below = {item for step in tops.values() for item in step.items if item in alone}
    for key, step in tops.items():
        if key not in below:
            tree = _tree(key, step, alone)
            if _are_alike(tree, [step, *(alone[k] for k in tree.between)], firsts):
                yield tree


def _may_go(table: Table, key: Any) -> bool:
    unasked = table.users[key] == 1 and key not in table.wanted
    return unasked and table.why_fixed(table.tasks[key]) is None


def _tree(root: Any, step: Step, alone: Mapping[Any, Step]) -> Tree:
    found = Tree(root, step, [], [])
    waiting = list(step.items)
    for item in waiting:  # Which grows meanwhile.
        if item in alone and alone[item].axes == step.axes:
            found.between.append(item)
            waiting += alone[item].items
        else:
            found.leaves.append(item)
    return found


def _are_alike(tree: Tree, steps: Sequence[Step], firsts: Mapping[Any, Any]) -> bool:
    """Return whether a tree joins results of the same first steps, by the steps after these."""
    if len(set(tree.leaves)) < len(tree.leaves) or not all(k in firsts for k in tree.leaves):
        return False
    first = firsts[tree.leaves[0]]
    after = steps_after(first)
    known = all(any(step.function is each for each in after) for step in steps)
    same = {(bare(firsts[k].func), firsts[k].kwargs["axis"]) for k in tree.leaves}
    return known and same == {(bare(first.func), tree.step.axes)}
