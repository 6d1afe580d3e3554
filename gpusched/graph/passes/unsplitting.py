"""Pieces of large chunks, all computed with alike -> the chunks, computed with as they were.

dask cuts chunks into pieces to make their results fit each other (`unify_chunks`), or for fear of
what a function makes of them (`sliding_window_view`), and each piece goes a way of its own to the
result, three or four tasks long. Where all pieces of a chunk go the same way, and what is computed
of each position comes from that position alone (`gpusched.graph.functions.independence`), the
chunk may as well go it: a rolling mean of 10 chunks was 1,408 tasks, and is 59. What pieces are
computed with may be taken of another chunk, position by position (`gpusched.graph.passes.taking`),
such as the means of the days' months: days without them were 1,730 tasks, and are 25.

Where pieces are reduced along the axis along which they are cut, the chunk may as well be reduced
at once: dask's later steps join what is left of all of them, whose number does not matter to them
(`gpusched.graph.passes.reductiontrees`). How much days differ from the means of their months was
432 tasks, and is 25.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from dask.array.core import concatenate3

from gpusched.adapters.tasks import (
    Task,
    execute_subgraph,
)
from gpusched.breaks import GraphBreak
from gpusched.graph.functions.independence import Reduced
from gpusched.graph.passes.alike import Families, are_windows
from gpusched.graph.passes.cutting import pieces_in
from gpusched.graph.passes.families import Family, Place, coarse, nested
from gpusched.graph.passes.grouping import tiny_bytes
from gpusched.graph.passes.joins import joined, with_chunks
from gpusched.graph.passes.reductiontrees import Tree, parted_pieces, trees_of
from gpusched.graph.passes.table import Table, drop
from gpusched.graph.subgraph import key_of_argument, last_task, layer_of, leaves
from gpusched.roles import threads

Grid = Mapping[Place, Family]
"""The whole chunks of an array, by their places."""

Joins = Mapping[Any, Sequence[tuple[Any, Grid | None]]]
"""By task, the arrays whose chunks it joins: nested lists of these, and the grid of whole chunks
that they are pieces of; None for one that stays as it is."""

FEW = GraphBreak.FEW_CHUNKS("fewer chunks that are cut into pieces than threads")
NEEDED = GraphBreak.IN_PIECES("a task that needs the results in pieces")

MOST = 32
"""Results of whole chunks that one task joins at most where dask joins results by a tree: of more
chunks, pieces are reduced as they are. No program of the benchmarks has as many."""


def unsplit(table: Table) -> Table:
    """Return a graph in which chunks stay whole that would be computed with in pieces, all alike.

    Parameters
    ----------
    table
        The graph.

    Notes
    -----
    Nothing becomes more than a quarter larger than the graph's largest chunk, but for windows, of
    which kernels hold none, and calls without kernels (`gpusched.graph.running.blocks`) no more
    than dask's pieces have. There are as many whole chunks as threads at least, unless the pieces
    are tiny. Each task and each edge is looked at a constant number of times.

    There is no cycle among whole chunks. A member needs members of other families at its own place
    only, and these are of lower levels. What else needs members needs all of a family's, or nothing
    becomes whole: it joins them, or is a tree of steps that join what they leave. So where a join
    needs a whole chunk, and that another chunk, some member was computed with this one, and the
    join needed it before, too. A cycle has a join in it, since only joins lead from families to
    other chunks, and would have been one before.

    Where members take of several chunks of one array, what is used of these is joined first: no
    more than what all of them take together, which is looked at as any whole.
    """
    pieces = pieces_in(table.tasks)
    apart = parted_pieces(table, pieces)
    if apart is not None:
        attempt = _Unsplitting(replace(apart, apart=Counter()), pieces_in(apart.tasks))
        found = attempt.run()
        if attempt.reduces_wholes:
            table.apart.update(found.apart)
            return replace(found, apart=table.apart)
    return _Unsplitting(table, pieces).run()


class _Unsplitting:
    def __init__(self, table: Table, pieces: Mapping[Any, tuple[slice, ...]]) -> None:
        self._table = table
        self._tasks = table.tasks
        self._families = Families(table, pieces)
        self._trees: dict[Any, Tree] = {}
        """By their roots: trees that join what is left of all pieces of some chunks."""
        self.reduces_wholes = False
        """Whether such a tree joins what is left of whole chunks."""

    def run(self) -> Table:
        families = self._families
        families.find_cuts()
        if not families.may_have_others():
            return self._table
        if self._are_few(families.all, families.all):
            self._table.note("unsplit", FEW)
            return self._table
        families.find_others()
        whole = [f for f in families.all if f.cut is None]
        if not whole:
            return self._table
        self._find_trees()
        joins = self._judge()
        found = len(whole)
        whole = [family for family in whole if family.able]
        if len(whole) < found:
            self._table.note("unsplit", NEEDED, found - len(whole))
        given = list(dict.fromkeys(o for f in whole for o in f.operands if o.given))
        if not whole:
            return self._table
        if self._are_few(given, whole):
            self._table.note("unsplit", FEW)
            return self._table
        return self._rewritten(given, whole, joins)

    def _are_few(self, given: Sequence[Family], families: Sequence[Family]) -> bool:
        """Return whether whole chunks leave more to idle threads than tasks of pieces cost.

        While a task starts, a thread would do the work of as many bytes as tiny chunks have. So N
        pieces of b bytes cost N (b / threads + tiny), and whole chunks of them N b / sources.
        """
        sources = len({family.cut[0] for family in given if family.cut is not None})
        if sources >= threads():
            return False
        nbytes = [self._families.largest(family) for family in families]
        tasks = sum(len(family.members) for family in families)
        idle = 1 / sources - 1 / threads() if sources else math.inf
        return 0 in nbytes or sum(nbytes) * idle >= tasks * tiny_bytes()

    def _find_trees(self) -> None:
        """Note trees of results that are of all pieces of some chunks each."""
        reduced = [family for family in self._families.all if type(family.value) is Reduced]
        firsts = {k: last_task(self._tasks[k]) for f in reduced for k in f.members.values()}
        for tree in trees_of(self._table, firsts) if firsts else ():
            families = list(dict.fromkeys(self._families.places[key][0] for key in tree.leaves))
            complete = sum(len(each.members) for each in families) == len(tree.leaves)
            if complete and not (tree.between and len(families) > MOST):
                self._trees[tree.root] = tree
                for family in families:
                    family.link(families[0])

    def _judge(self) -> Joins:
        """Note what cannot be whole; return what joins the results, of whole chunks."""
        between = {key for tree in self._trees.values() for key in tree.between}
        joins: dict[Any, list[tuple[Any, Grid | None]]] = {}
        for family in self._families.all:
            for other in family.operands:
                family.link(other)
        for key, node in self._tasks.items():
            if key in between:
                continue
            if key in self._families.places:
                own = self._families.places[key][0]
                if own.cut is None:
                    continue
            arrays = _chunks_of(node)
            needed = self._needed(node, arrays)
            if any(grid is not None for _, grid in needed):
                grids = [grid for _, grid in needed]
                joins[key] = list(zip(arrays, grids, strict=True))
            for families, grid in needed:
                for family in families:
                    # What one task needs in pieces, all that are computed with them need so, too.
                    family.able &= grid is not None
                    family.link(families[0])
        waiting = [family for family in self._families.all if not family.able]
        while waiting:
            for other in waiting.pop().linked:
                if other.able:
                    other.able = False
                    waiting.append(other)
        return joins

    def _needed(self, node: Any, arrays: Sequence[Any]) -> list[tuple[list[Family], Grid | None]]:
        """Return the families that a task needs, and the grid of their wholes if it joins that.

        Each array that is joined stands for itself. Trees need their leaves whole or in pieces.
        """
        if not arrays:
            tree = self._trees.get(node.key)
            leaves_of = () if tree is None else tree.leaves
            return [(self._families_of(node.dependencies.difference(leaves_of)), None)]
        keys = [
            {index: key_of_argument(each) for index, each in leaves(chunks)} for chunks in arrays
        ]
        return [(self._families_of(each.values()), self._grid(each)) for each in keys]

    def _families_of(self, keys: Iterable[Any]) -> list[Family]:
        found = [self._families.places[key][0] for key in keys if key in self._families.places]
        return [family for family in found if not family.given]

    def _grid(self, keys: Mapping[Place, Any]) -> Grid | None:
        """Return what an array's chunks are whole; None if that does not fit."""
        places = {}
        for index, key in keys.items():
            found = self._families.places.get(key)
            if found is None or found[0].given or type(found[0].value) is Reduced:
                return None
            places[index] = found
        return coarse(places) if places else None

    def _rewritten(
        self,
        given: Sequence[Family],
        families: Sequence[Family],
        joins: Joins,
    ) -> Table:
        """Return the graph with these families whole, and what they are given."""
        tasks = dict(self._tasks)
        grids = {key: [self._pieces(chunks) for chunks, _ in arrays]
                 for key, arrays in joins.items()}  # fmt: skip
        whole: dict[Any, Any] = {}
        for family in [*given, *families]:
            self._note(family)
            if family.taken is None:
                whole |= dict.fromkeys(family.members.values(), family.name)
        for family in given:
            tasks.update(family.nodes())
        for family in families:
            for key in family.members.values():
                del tasks[key]
            made = self._made(family, whole)
            tasks[made.key] = made
        for key, arrays in joins.items():
            new = [chunks if grid is None else nested(grid, whole) or chunks
                   for chunks, grid in arrays]  # fmt: skip
            tasks[key] = with_chunks(self._tasks[key], new)
            for (old, grid), each, pieces in zip(arrays, new, grids[key], strict=True):
                if grid is not None and each is not old and pieces is not None:
                    self._note_grid(pieces, grid, whole)
        for key, tree in self._trees.items():
            if tree.leaves[0] in whole:
                self.reduces_wholes = True
                for between in tree.between:
                    del tasks[between]
                names = dict.fromkeys(whole[leaf] for leaf in tree.leaves)
                tasks[key] = tree.joining(self._table, [*names])
        drop(tasks, [key for f in given for key in f.members.values()], set(self._table.wanted))
        return replace(self._table, tasks=tasks)

    def _pieces(self, chunks: Any) -> tuple[int, Any] | None:
        """Return the bytes of an element of chunks that are joined, and how long they are."""
        keys = [key_of_argument(each) for _, each in leaves(chunks)]
        return None if None in keys else self._table.sizes.grid(keys)

    def _note_grid(self, pieces: tuple[int, Any], grid: Grid, whole: Mapping[Any, Any]) -> None:
        """Note how long the whole chunks of an array are, by its pieces along each axis."""
        itemsize, along = pieces
        chunks = []
        for axis, lengths in enumerate(along):
            line = (grid[place] for place in sorted(grid)
                    if not any(place[:axis] + place[axis + 1 :]))  # fmt: skip
            left = iter(lengths)
            chunks.append(tuple(sum(islice(left, family.count(axis))) for family in line))
        keys = [whole[grid[place].first] for place in sorted(grid)]
        self._table.sizes.add_grid(keys, itemsize, tuple(chunks))

    def _made(self, family: Family, whole: Mapping[Any, Any]) -> Task:
        """Return the task that does for the whole what the members do for the pieces."""
        node = self._families.wholes[family.first]
        taken = {o.first: o.name for o in family.operands if o.taken is not None}
        needed = (k for k in node.dependencies if not self._families.is_common(k))
        names = {k: taken.get(k) or whole[k] for k in needed}
        made: Task = node.substitute(names, key=family.name)
        return made

    def _note(self, family: Family) -> None:
        """Note the sizes of what is whole, and of the tasks inside, which keep their names.

        There are no more windows at a time than a piece has, whose size is known.
        """
        fused = not family.given and self._tasks[family.first].func is execute_subgraph
        for key, itemsize, shape in self._families.sizes_of(family):
            if are_windows(family, key, itemsize, shape):
                continue
            names = [family.name[0]] * (key == family.first) + [layer_of(key)] * fused
            for name in names:
                self._table.sizes.add(name, itemsize, shape)


def _chunks_of(node: Any) -> Sequence[Any]:
    """Return the nested lists of chunks that a task joins, array by array."""
    if type(node) is Task and node.func is concatenate3:
        return node.args if len(node.args) == 1 and not node.kwargs else []
    return joined(node)
