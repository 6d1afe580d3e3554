"""Steps of reductions in a graph: those that dask has fused become tasks, and these form trees.

dask fuses a first step with what is computed before it, and the last steps where a number of chunks
is left over. Who gives steps other results to join takes them apart first; what stays as it was is
put together again by `gpusched.graph.passes.chains.without_links`.

Steps after the first one take however many results there are, so a tree by which dask joins results
of pieces may as well be one step on the results of the chunks that the pieces are of.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpusched.adapters.arrays import take
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
from gpusched.graph.passes.cutting import piece_of
from gpusched.graph.passes.table import Table
from gpusched.graph.subgraph import depth_first, fused_into, last_task, made_of, references
from gpusched.plan.grids import Index


def parted(table: Table, keys: Container[Any], cuts: bool = False) -> Table:
    """Return a graph in which each step of a reduction is the last of its task.

    Parameters
    ----------
    table
        The graph.
    keys
        Of the tasks that are taken apart.
    cuts
        Whether pieces that are cut off chunks become tasks of their own, too, where there are
        steps: dask fuses all that is done with a piece where nothing else is computed with it.
    """
    found = {}
    for key, node in table.tasks.items():
        flat = table.inside(node) if key in keys else None
        if flat is None:
            found[key] = node
            continue
        inner, last = flat
        ends = [
            k for k, each in inner.items() if k != last and (is_step(each) or steps_after(each))
        ]
        if cuts and (ends or steps_after(inner[last])):
            ends += [k for k, each in inner.items() if k != last and _cuts(each, inner)]
        for end in (*ends, last):
            group = computed_from(end, inner, set(ends) - {end})
            found[end] = table.fused([inner[k] for k in group], end)
    return replace(table, tasks=found)


def computed_from(key: Any, inner: Mapping[Any, Any], beyond: Collection[Any] = ()) -> list[Any]:
    """Return the keys of a task and of those before it, operands first, but for some and theirs."""

    def operands(name: Any) -> list[Any]:
        return [k for k in references(inner[name]) if k in inner and k not in beyond]

    return depth_first([key], operands)


def _cuts(node: Any, inner: Mapping[Any, Any]) -> bool:
    """Return whether a task cuts a piece off a chunk, rather than off what is computed beside."""
    return piece_of(node) is not None and node.dependencies.isdisjoint(inner)


# Reductions of pieces -----------------------------------------------------------------------


def parted_pieces(table: Table, pieces: Mapping[Any, Index]) -> Table | None:
    """Return a graph in which pieces that are reduced, and what joins them, are no part of others.

    None if there are no such pieces. Most pieces are joined with those of other chunks, or reduced
    along other axes than those along which chunks are cut: nothing is taken apart for these.

    Parameters
    ----------
    table
        The graph.
    pieces
        By the keys of tasks that do nothing else, which slices of a chunk they cut off.
    """
    tasks = table.tasks
    cut = _begun(pieces.values())

    def reduces_pieces(node: Any) -> bool:
        axes = _reduced_axes(node)
        if not axes.isdisjoint(_begun(filter(None, map(piece_of, made_of(node))))):
            return True
        given = not axes.isdisjoint(cut) and not pieces.keys().isdisjoint(node.dependencies)
        return given and all(k in pieces or _calls_take(tasks.get(k)) for k in node.dependencies)

    reducing = {key: node for key, node in tasks.items() if _reduces(node)}
    return parted(table, reducing, True) if any(map(reduces_pieces, reducing.values())) else None


def _begun(pieces: Iterable[Index]) -> set[int]:
    """Return the axes along which chunks are cut: along which a piece begins further on."""
    return {axis for index in pieces for axis, each in enumerate(index) if each.start}


def _reduced_axes(node: Any) -> set[int]:
    """Return the axes along which first steps of reductions reduce that are fused into a task."""
    firsts = filter(steps_after, made_of(node))
    return set[int]().union(*(each.kwargs["axis"] for each in firsts))


def _calls_take(node: Any) -> bool:
    return any(getattr(each, "func", None) is take for each in made_of(node))


def _reduces(node: Any) -> bool:
    """Return whether a task has a step of a reduction in it, after something else."""
    inside = fused_into(node).values()
    return bool(inside) and (bool(steps_after(last_task(node))) or any(map(is_step, inside)))


# Trees ------------------------------------------------------------------------------------


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
