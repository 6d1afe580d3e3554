"""Reductions of the pieces of chunks -> of the chunks, where these can stay whole.

dask cuts chunks into pieces to make them fit others, and reduces each piece along the axis along
which it was cut. Its steps after the first one take however many results there are, so the pieces
may as well be joined again before they are reduced: then nothing needs them apart, and
`gpusched.graph.passes.unsplitting` leaves the chunk whole. How much days differ from the means of
their months was 440 tasks, and is 25.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dask.array.core import concatenate3

from gpusched.adapters.arrays import take
from gpusched.adapters.tasks import List, Task, TaskRef
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
from gpusched.graph.passes.parting import computed_from, parted
from gpusched.graph.passes.table import Table, block_of, key_of
from gpusched.graph.passes.unsplitting import cut_chunks, unsplit
from gpusched.graph.subgraph import (
    depth_first,
    fused_into,
    last_task,
    layer_of,
    made_of,
)

Index = tuple[slice, ...]

MOST = 32
"""Results of whole chunks that one task joins at most where dask joins results by a tree: of more
chunks, pieces are reduced as they are. No program of the benchmarks has as many."""


def whole_chunks(table: Table) -> Table:
    """Return a graph in which chunks stay whole that are computed with in pieces, or reduced so.

    Parameters
    ----------
    table
        The graph.

    Notes
    -----
    A reduction has the same terms then, joined in another order, as where dask had not cut the
    chunks. Where a chunk cannot stay whole, nothing is done: no pieces are joined.
    """
    found = {key: piece_of(node) for key, node in table.tasks.items()}
    pieces = {key: index for key, index in found.items() if index is not None}
    parted = _Joining(table).run() if _may_reduce_pieces(table, pieces) else None
    if parted is not None:
        joined, keys = parted
        attempt = replace(joined, apart=Counter())
        whole = _without_joins(unsplit(attempt), keys)
        if whole is not None:
            table.apart.update(attempt.apart)
            return replace(whole, apart=table.apart)
    return unsplit(table) if pieces else table


def _may_reduce_pieces(table: Table, pieces: Mapping[Any, Index]) -> bool:
    """Return whether a task may reduce what is computed of the pieces of one place alone.

    Nothing is taken apart where none does: most pieces are joined with those of other chunks, or
    are reduced along other axes than those along which chunks are cut. Of a chunk that is cut along
    an axis, some piece begins further on, and is reduced along that axis as all the others are.
    """
    tasks = table.tasks
    known = dict.fromkeys(pieces, True)
    cut = _begun(pieces.values())

    def operands(key: Any) -> list[Any]:
        return [k for k in tasks[key].dependencies if k in tasks and k not in known]

    def is_of_pieces(key: Any) -> bool:
        """Return whether a task is computed of nothing but pieces, and what is taken of chunks."""
        for each in depth_first([key] if key in tasks and key not in known else [], operands):
            needed = tasks[each].dependencies
            alone = bool(needed) and all(known.get(k, False) for k in needed)
            known[each] = alone or _calls_take(tasks[each])
        return known.get(key, False)

    def reduces_pieces(node: Any) -> bool:
        axes = _reduced_axes(node) if _reduces(node) else set[int]()
        if not axes:
            return False
        if not axes.isdisjoint(_begun(filter(None, map(piece_of, made_of(node))))):
            return True
        given = not axes.isdisjoint(cut) and not pieces.keys().isdisjoint(node.dependencies)
        return given and all(map(is_of_pieces, node.dependencies))

    return any(map(reduces_pieces, tasks.values()))


def _begun(pieces: Iterable[Index]) -> set[int]:
    """Return the axes along which some pieces do not begin where their chunks do."""
    return {axis for index in pieces for axis, each in enumerate(index) if each.start}


def _reduced_axes(node: Any) -> set[int]:
    """Return the axes along which first steps of reductions reduce that are fused into a task."""
    firsts = filter(steps_after, made_of(node))
    return set[int]().union(*(each.kwargs["axis"] for each in firsts))


def _calls_take(node: Any) -> bool:
    return any(getattr(each, "func", None) is take for each in made_of(node))


def _reduces(node: Any) -> bool:
    """Return whether a task has a step of a reduction in it, after something else."""
    inside = fused_into(node)
    return bool(inside) and (bool(steps_after(last_task(node))) or any(map(is_step, inside)))


def _without_joins(table: Table, keys: list[Any]) -> Table | None:
    """Return a graph without joins of one chunk; None if one of some joins has several pieces."""
    names: dict[Any, Any] = {}
    for key in keys:
        needed = table.tasks[key].dependencies
        if len(needed) > 1:
            return None
        (names[key],) = needed
    result = {}
    for key, node in table.tasks.items():
        if key not in names:
            used = {k: names[k] for k in node.dependencies if k in names}
            result[key] = node.substitute(used) if used else node
    return replace(table, tasks=result)


class _Piece(NamedTuple):
    """Where a piece is in its chunk, which is cut along one axis."""

    source: Any
    """Key of the chunk."""
    axis: int
    number: int
    pieces: int
    """How many pieces there are."""
    start: int
    stop: int


@dataclass(frozen=True)
class _Leaf:
    """The first step of a reduction, of a piece of a chunk."""

    piece: _Piece
    inner: Mapping[Any, Any]
    """What is done with the piece, by key."""
    first: Task


class _Joining:
    """Joins pieces before they are reduced, which are parts of one tree of results each."""

    def __init__(self, table: Table) -> None:
        steps = {key for key, node in table.tasks.items() if _reduces(node)}
        self._table = table = parted(table, steps, cuts=True)
        self._tasks = table.tasks
        self._wanted = {*table.wanted, *table.items}
        self._steps: dict[Any, Step] = {}
        """By task that does nothing else: how it joins results."""
        self._result: dict[Any, Any] = {}
        self._joins: list[Any] = []

    def run(self) -> tuple[Table, list[Any]] | None:
        """Return the graph, and the keys of what joins pieces; None if nothing is to be joined."""
        cuts = self._cuts()
        if not cuts:
            return None
        leaves = {}
        for key, node in self._tasks.items():
            leaf = self._leaf(key, node, cuts)
            if leaf is not None:
                leaves[key] = leaf
        if not leaves:
            return None
        self._result = dict(self._tasks)
        for root in self._roots(leaves):
            self._change(root, leaves)
        return (replace(self._table, tasks=self._result), self._joins) if self._joins else None

    def _cuts(self) -> dict[Any, _Piece]:
        """Return the pieces of chunks that are cut along one axis each, into nothing but these."""
        found = {}
        for source, group, (axes, _, members, _) in cut_chunks(
            self._tasks, lambda key, node: key not in self._wanted
        ):
            # A piece of what is taken of a chunk is taken of it as well.
            taken = getattr(self._tasks.get(source), "func", None) is take
            if taken or len(axes) > 1:
                continue
            for (number,), key in members.items():
                along = group[key][axes[0]]
                found[key] = _Piece(source, axes[0], number, len(group), along.start, along.stop)
        return found

    def _leaf(self, key: Any, node: Any, cuts: Mapping[Any, Any]) -> _Leaf | None:
        given = [k for k in getattr(node, "dependencies", ()) if k in cuts]
        last = last_task(node) if given else None
        if last is None or not steps_after(last) or not self._may_go(key, node):
            return None
        pieces = [cuts[k] for k in given]
        flat = self._table.inside(node)
        if flat is None or len({each[1:] for each in pieces}) > 1:
            return None
        first, piece = flat[0][flat[1]], min(pieces, key=lambda each: str(each.source))
        if piece.axis not in first.kwargs["axis"] or len(flat[0]) < 2:
            return None
        return _Leaf(piece, flat[0], first)

    def _may_go(self, key: Any, node: Any) -> bool:
        alone = self._table.users[key] == 1 and key not in self._wanted
        return alone and self._table.why_fixed(node) is None

    # Trees of results ---------------------------------------------------------------------------

    def _roots(self, leaves: Mapping[Any, _Leaf]) -> list[tuple[Any, Step, list[Any], list[Any]]]:
        """Return tasks that join all results of leaves: their keys, how they join, the leaves.

        With them come the keys of the tasks between.
        """
        tops: dict[Any, Step] = {}
        below: set[Any] = set()
        for key, node in self._tasks.items():
            step = self._step(node)
            if step is not None:
                tops[key] = step
                if not fused_into(node) and self._may_go(key, node) and step.keepdims:
                    self._steps[key] = step
        for step in tops.values():
            below |= self._steps.keys() & set(step.items)
        roots = []
        for key, step in tops.items():
            if key in below:
                continue
            under, between, waiting = [], [], list(step.items)
            for item in waiting:  # Which grows meanwhile.
                if item in self._steps and self._steps[item].axes == step.axes:
                    between.append(item)
                    waiting += self._steps[item].items
                else:
                    under.append(item)
            if all(item in leaves for item in under) and len(set(under)) == len(under):
                functions = [step.function, *(self._steps[k].function for k in between)]
                after = steps_after(leaves[under[0]].first)
                known = all(any(f is each for each in after) for f in functions)
                same = {(leaves[k].first.kwargs["axis"], bare(leaves[k].first.func)) for k in under}
                if known and same == {(step.axes, bare(leaves[under[0]].first.func))}:
                    roots.append((key, step, under, between))
        return roots

    def _step(self, node: Any) -> Step | None:
        """Return how a task joins results in the end; None if it does not."""
        flat = self._table.inside(node) if is_step(last_task(node)) else None
        return None if flat is None else step_of(flat[0][flat[1]])

    def _change(self, root: tuple[Any, Step, list[Any], list[Any]],
                leaves: Mapping[Any, _Leaf]) -> None:  # fmt: skip
        """Join the pieces of each chunk before they are reduced, if there are several each."""
        key, joins, under, between = root
        groups: defaultdict[Any, dict[int, Any]] = defaultdict(dict)
        for name in under:
            piece = leaves[name].piece
            others = tuple(b for k, b in enumerate(block_of(name)) if k != piece.axis)
            groups[piece.source, piece.axis, piece.pieces, others][piece.number] = name
        if sum(map(len, groups.values())) < len(under):
            return  # Some are of the same piece.
        if any(len(each) < count for (_, _, count, _), each in groups.items()):
            return
        if between and len(groups) > MOST:
            return
        made: list[Any] = []
        for group in groups.values():
            joined = self._joined([group[number] for number in sorted(group)], leaves)
            if joined is None:
                return
            made.append(joined)
        for name in (*under, *between):
            del self._result[name]
        for nodes in made:
            self._result.update((node.key, node) for node in nodes)
            self._joins.append(nodes[-2].key)
        flat = self._table.inside(self._tasks[key])
        assert flat is not None
        inner = dict(flat[0])
        instead: dict[Any, list[Any]] = {item: [] for item in joins.items}
        instead[joins.items[0]] = [nodes[-1].key for nodes in made]
        inner[key] = with_results(inner[key], instead)
        self._result[key] = self._table.fused(list(inner.values()), key)

    def _joined(self, names: list[Any], leaves: Mapping[Any, _Leaf]) -> list[Any] | None:
        """Return what computes with some pieces, joins them, and reduces them, in that order."""
        nodes: list[Any] = []
        sizes, lengths = self._table.sizes, []
        told: tuple[int, tuple[int, ...]] | None = None
        for name in names:
            leaf = leaves[name]
            (before,) = leaf.first.dependencies
            key = (layer_of(before), *block_of(name))
            told = sizes.lengths({}, key)
            if key in self._tasks or told is None or leaf.first.key != name:
                return None
            # In the same order for all, whatever dask has fused: they are alike.
            order = computed_from(before, leaf.inner)
            inner = [leaf.inner[k] for k in order]
            if len(inner) == 1:
                nodes.append(inner[0].substitute({}, key=key))
            else:
                nodes.append(Task.fuse(*inner, key=key))
            lengths.append(leaf.piece.stop - leaf.piece.start)
        assert told is not None
        first, axis, ndim = leaves[names[0]], leaves[names[0]].piece.axis, len(told[1])
        block = block_of(names[0])
        if len(block) != ndim:
            return None
        chunks: Any = [TaskRef(node.key) for node in nodes]
        for _ in range(ndim - 1 - axis):
            chunks = [List(each) for each in chunks]
        chunks = List(*chunks)
        for _ in range(axis):
            chunks = List(chunks)
        (before,) = first.first.dependencies
        content = layer_of(names[0]), lengths, [block_of(name) for name in names]
        join = key_of("joined", before, content, block)
        whole = key_of("whole", names[0], content, block)
        shape = tuple(sum(lengths) if k == axis else n for k, n in enumerate(told[1]))
        sizes.add(whole[0], told[0], shape)
        sizes.add(join[0], told[0], shape)
        step = first.first.substitute({before: join}, key=whole)
        return [*nodes, Task(join, concatenate3, chunks), step]
