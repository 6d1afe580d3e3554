"""The trees by which dask joins what first steps of a reduction leave of chunks.

Steps after the first one take however many results there are, so a tree of results of pieces may as
well be one step on the results of the chunks that the pieces are of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusched.adapters.tasks import Task
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


@dataclass(frozen=True)
class Tree:
    """A task that joins results of first steps, by other tasks or alone."""

    root: Any
    """Its key."""
    step: Step
    """What it does."""
    between: list[Any]
    """Keys of the other tasks."""
    leaves: list[Any]
    """Keys of the first steps' results."""

    def joining(self, table: Table, results: Sequence[Any]) -> Task:
        """Return the task that joins other results itself, by their keys."""
        first, *others = self.step.items
        instead = {first: [*results], **{item: [] for item in others}}
        return with_results(table.tasks[self.root], instead)


def trees_of(table: Table, firsts: Mapping[Any, Any]) -> Iterator[Tree]:
    """Yield trees that join what alike first steps leave, each of it once.

    Parameters
    ----------
    table
        The graph.
    firsts
        First steps of reductions, by the keys of the tasks that end with them.
    """
    found = ((key, step_of(node)) for key, node in table.tasks.items() if is_step(node))
    steps = {key: step for key, step in found if step is not None}
    alone = {key: step for key, step in steps.items() if step.keepdims and _may_go(table, key)}
    below = {item for step in steps.values() for item in step.items if item in alone}
    for key, step in steps.items():
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
