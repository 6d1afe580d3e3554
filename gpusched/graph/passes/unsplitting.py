"""Pieces of large chunks, all computed with alike -> the chunks, computed with as they were.

dask cuts chunks into pieces to make their results fit each other (`unify_chunks`), or for fear of
what a function makes of them (`sliding_window_view`), and each piece goes a way of its own to the
result, three or four tasks long. Where all pieces of a chunk go the same way, and what is computed
of each position comes from that position alone (`gpusched.graph.functions.independence`), the
chunk may as well go it: a rolling mean of 10 chunks was 1,408 tasks, and is 59. What pieces are
computed with may be taken of another chunk, position by position (`gpusched.graph.passes.taking`),
such as the means of the days' months: days without them were 1,730 tasks, and are 25.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import getitem
from typing import Any

import numpy as np
from dask.array.core import concatenate3

from gpusched.adapters.tasks import (
    DataNode,
    Task,
    TaskRef,
    execute_subgraph,
)
from gpusched.breaks import GraphBreak
from gpusched.graph.functions.independence import Divided, Reduced, results
from gpusched.graph.passes.cutting import piece_of
from gpusched.graph.passes.families import Family, Place, coarse, grid_of, nested
from gpusched.graph.passes.grouping import tiny_bytes
from gpusched.graph.passes.joins import joined, with_chunks
from gpusched.graph.passes.parting import parted_pieces
from gpusched.graph.passes.reductiontrees import Tree, trees_of
from gpusched.graph.passes.shownshapes import ShownShapes, divisions
from gpusched.graph.passes.sizes import Sized
from gpusched.graph.passes.table import Table, drop
from gpusched.graph.passes.taking import Lengths, Taken, taken_by, united
from gpusched.graph.programs.templates import Signatures
from gpusched.graph.subgraph import depth_first, key_of_argument, last_task, layer_of, leaves
from gpusched.roles import threads

Grid = Mapping[Place, Family]
"""The whole chunks of an array, by their places."""

Joins = Mapping[Any, Sequence[tuple[Any, Grid | None]]]
"""By task, the arrays whose chunks it joins: nested lists of these, and the grid of whole chunks
that they are pieces of; None for one that stays as it is."""

FEW = GraphBreak.FEW_CHUNKS("fewer chunks that are cut into pieces than threads")
UNKNOWN = GraphBreak.UNKNOWN_SIZE("pieces of a chunk of unknown length, or no array of NumPy's")
SOME = GraphBreak.IN_PIECES("the same is not computed of all pieces of a chunk")
DEPENDENT = GraphBreak.IN_PIECES("a function that may compute an element from others")
NEEDED = GraphBreak.IN_PIECES("a task that needs the results in pieces")
LARGE = GraphBreak.LARGE("whole results more than a quarter larger than any chunk of the graph")

OVERLAP = 1.25
"""Times the largest chunk that a whole may be: a chunk with a few rows of its neighbours."""

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
    becomes whole: it joins them. So where a join needs a whole chunk, and that another chunk, some
    member was computed with this one, and the join needed it before, too. A cycle has a join in it,
    since only joins lead from families to other chunks, and would have been one before.

    Where members take of several chunks of one array, what is used of these is joined first: no
    more than what all of them take together, which is looked at as any whole.
    """
    apart = parted_pieces(table)
    if apart is not None:
        attempt = _Unsplitting(replace(apart, apart=Counter()))
        found = attempt.run()
        if attempt.joins_wholes:
            table.apart.update(found.apart)
            return replace(found, apart=table.apart)
    return _Unsplitting(table).run()


class _Unsplitting:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._tasks = table.tasks
        self._wanted = set(table.wanted)
        self._places: dict[Any, tuple[Family, Place]] = {}
        self._families: list[Family] = []
        self._takes_of: dict[Any, tuple[Taken, ...] | None] = {}
        self._others_take: dict[Any, Any] = {}
        """What tasks take that those may cut which take of them."""
        self._taking: dict[Any, tuple[Any, ...]] = {}
        """By task: the keys of those that take what it is computed with, in the order of use."""
        self._taken: dict[tuple[Any, ...], Family] = {}
        """By the keys of their members: families that take of a chunk."""
        self._signatures = Signatures()
        self._shown = ShownShapes(table)
        self._apart: dict[Any, tuple[Task, dict[Any, tuple[int, ...]]]] = {}
        """By key: tasks without the shapes of chunks that show one element, and these shapes."""
        self._whole: dict[Any, Task] = {}
        """By the key of the first member: what families do with wholes, but for their names."""
        self._sized = Sized(self._tasks)
        self._trees: dict[Any, Tree] = {}
        """By their roots: trees that join what is left of all pieces of some chunks."""

    def run(self) -> Table:
        self._find_cuts()
        if self._may_have_others():
            self._find_others()
        whole = [f for f in self._families if f.cut is None]
        if not whole:
            return self._table
        self._find_trees()
        joins = self._judge()
        found = len(whole)
        whole = [family for family in whole if family.able]
        if len(whole) < found:
            self._table.note("unsplit", NEEDED, found - len(whole))
        given = list(dict.fromkeys(o for f in whole for o in f.operands if o.given))
        sources = {f.cut[0] for f in given if f.cut is not None}
        if not whole:
            return self._table
        if self._are_few(whole, len(sources)):
            self._table.note("unsplit", FEW)
            return self._table
        return self._rewritten(given, whole, joins)

    @property
    def joins_wholes(self) -> bool:
        """Whether a tree joins what is left of whole chunks."""
        return any(self._places[tree.leaves[0]][0].able for tree in self._trees.values())

    def _are_few(self, families: Sequence[Family], sources: int) -> bool:
        """Return whether whole chunks leave more to idle threads than tasks of pieces cost.

        While a task starts, a thread would do the work of as many bytes as tiny chunks have. So N
        pieces of b bytes cost N (b / threads + tiny), and whole chunks of them N b / sources.
        """
        if sources >= threads():
            return False
        nbytes = [self._largest(family) for family in families]
        tasks = sum(len(family.members) for family in families)
        idle = 1 / sources - 1 / threads() if sources else math.inf
        return 0 in nbytes or sum(nbytes) * idle >= tasks * tiny_bytes()

    # What may be whole ----------------------------------------------------------------------

    def _find_cuts(self) -> None:
        """Note the chunks that are cut into pieces of which each element is in one."""
        for source, _, (axes, lengths, members, whole) in cut_chunks(self._tasks, self._may_go):
            if self._are_inside(source, whole):
                family = Family(members, Divided(len(whole), axes), lengths, 0, (source, whole),
                                 sources=frozenset([source]))  # fmt: skip
                self._add(family)
            else:
                self._table.note("unsplit", UNKNOWN)

    def _are_inside(self, source: Any, whole: tuple[slice, ...]) -> bool:
        """Return whether pieces are of an array of NumPy's or CuPy's, and end where it does.

        Of other types, an operator may be another one, such as a product of matrices, and what is
        not an array yet is read in pieces since there is a lot of it. Pieces of a shorter chunk may
        be broadcast where the whole would not be: chunks are as long as dask has noted.
        """
        lengths = self._lengths(source)
        return (
            lengths is not None
            and len(lengths) == len(whole)
            and all(each.stop <= length for each, length in zip(whole, lengths, strict=True))
        )

    def _lengths(self, chunk: Any) -> Lengths | None:
        """Return how long a chunk is at most; None if it may be no array of NumPy's or CuPy's."""
        node = self._tasks.get(chunk)
        if type(node) is DataNode and type(node.value) is not np.ndarray:
            return None
        told = self._table.sizes.lengths(self._tasks, chunk)
        return None if told is None else told[1]

    def _may_go(self, key: Any, node: Task) -> bool:
        sizes = self._table.sizes
        return key not in self._wanted and not node.data_producer and not sizes.is_annotated(node)

    def _add(self, family: Family) -> None:
        self._families.append(family)
        for place, key in family.members.items():
            self._places[key] = family, place

    def _may_have_others(self) -> bool:
        """Return whether a task takes nothing but pieces of one place, by a scan of one place.

        Not the first one: on its diagonal, a transposed grid has the same places.
        """
        sources = {f.cut[0] for f in self._families if f.cut is not None}
        second = {list(f.members.values())[1] for f in self._families}
        found = any(
            not second.isdisjoint(node.dependencies)
            and all(k in second or self._takes(k) for k in node.dependencies)
            for node in self._tasks.values()
        )
        if found and self._are_few(self._families, len(sources)):
            self._table.note("unsplit", FEW)
            return False
        return found

    def _takes(self, key: Any) -> tuple[Taken, ...] | None:
        """Return what a task takes of chunks, one after the other; None if it does more."""
        if key not in self._takes_of:
            node = self._tasks.get(key)
            may = type(node) is Task and self._may_go(key, node)
            taken = taken_by(node, self._tasks, self._lengths, self._others_take) if may else None
            self._takes_of[key] = taken
        return self._takes_of[key]

    def _find_others(self) -> None:
        """Note what is computed of these pieces alike, level by level."""
        levels: dict[int, list[Any]] = defaultdict(list)
        for key, level in _levels(self._tasks, self._places):
            levels[level].append(key)
        for level in sorted(levels):
            groups: defaultdict[Any, dict[Place, Any]] = defaultdict(dict)
            for key in levels[level]:
                form = self._form(key)
                if form is not None:
                    groups[form[0]][form[1]] = key
            for group in groups.values():
                self._found(group, level)

    def _form(self, key: Any) -> tuple[Any, Place] | None:
        """Return what a task does with pieces, and which pieces these are; None if it cannot go."""
        node = self._tasks[key]
        if type(node) is not Task or not self._may_go(key, node):
            return None
        found = {k: self._places[k] for k in node.dependencies if k in self._places}
        if not found:
            return None
        pieces = list(found.values())
        if len(pieces) < len(node.dependencies) or len({(f.lengths, p) for f, p in pieces}) > 1:
            # Pieces of what is taken of a chunk are taken of it as well.
            pieces = [each for k, each in found.items() if not self._is_taken(k)] or pieces
        family, place = pieces[0]
        others = {
            k for k in node.dependencies
            if k not in found or found[k][1] != place or found[k][0].lengths != family.lengths
        }  # fmt: skip
        if not all(self._is_common(k) or self._fits(k, family, place) for k in others):
            return None
        apart, shapes = self._apart[key] = self._shown.apart(node)
        signature, inputs = self._signatures.of(apart)
        slots = tuple([
            _told(each) if type(each) is not TaskRef
            else (each.key, len(shapes[each.key])) if each.key in shapes
            else id(found[each.key][0]) if each.key not in others
            else each.key if self._is_common(each.key)
            else self._slot(each.key)
            for each in inputs
        ])  # fmt: skip
        given = dict.fromkeys(each.key for each in inputs if type(each) is TaskRef)
        self._taking[key] = tuple(k for k in given if k in others and not self._is_common(k))
        return (signature, slots, layer_of(key)), place

    def _is_taken(self, piece: Any) -> bool:
        """Return whether a piece may be taken of a chunk, by the chunk that it is cut off."""
        family, _ = self._places[piece]
        return self._takes(piece if family.cut is None else family.cut[0]) is not None

    def _fits(self, key: Any, family: Family, place: Place) -> bool:
        """Return whether a task takes as many positions of a chunk as pieces of a place have."""
        taken = self._takes(key)
        if taken is None or len(place) != 1:
            return False
        return sum(len(t.positions) for t in taken) == family.lengths[0][place[0]]

    def _is_common(self, key: Any) -> bool:
        """Return whether tasks of all pieces may compute with the same array, such as weights."""
        node = self._tasks.get(key)
        return type(node) is DataNode and type(node.value) is np.ndarray

    def _slot(self, key: Any) -> Any:
        """Return what a task has in common with all that take what pieces are computed with."""
        # Positions of other types may not be joined: NumPy has no integers for all of them.
        found = {(self._array(t), t.axis, t.positions.dtype.str) for t in self._takes(key) or ()}
        return found.pop() if len(found) == 1 else key

    def _array(self, taken: Taken) -> Any:
        """Return what is the same for chunks that follow each other along the axis of positions.

        dask has noted one dtype for them, and that they are as long along the other axes.
        """
        source, axis = taken.source, taken.axis
        if type(source) is not tuple or len(source) != 1 + len(taken.lengths):
            return source
        node = self._tasks.get(source)
        dtype = node.value.dtype if type(node) is DataNode else None
        others = taken.lengths[:axis] + taken.lengths[axis + 1 :]
        return source[: 1 + axis], source[2 + axis :], others, dtype

    def _found(self, group: dict[Place, Any], level: int) -> None:
        """Note tasks of one form, if there is one for each piece."""
        key = next(iter(group.values()))
        taking = set(self._taking[key])
        pieces, _ = next(
            self._places[k] for k in self._tasks[key].dependencies
            if k in self._places and k not in taking
        )  # fmt: skip
        if len(group) < len(pieces.members):
            # Where a task takes pieces of several places, each group is of one.
            if len(group) > 1:
                self._table.note("unsplit", SOME)
            return
        members = {place: group[place] for place in pieces.members}
        first = self._tasks[next(iter(members.values()))]
        given = {
            keys[0]: self._taken_by(keys, pieces)
            for keys in zip(*(self._taking[key] for key in members.values()), strict=True)
        }
        common = [k for k in first.dependencies if self._is_common(k)]
        given |= {k: self._places[k][0] for k in first.dependencies - {*given, *common}}
        operands = list(dict.fromkeys(given.values()))
        sources = frozenset().union(*(each.sources for each in operands))
        # A chunk of length 1 is broadcast as a whole, where none or one of its pieces is.
        if (len(operands) > 1 or self._apart[first.key][1]) and not self._sized(sources):
            self._table.note("unsplit", UNKNOWN)
            return
        values: dict[Any, Any] = {key: each.value for key, each in given.items()}
        values |= {key: self._tasks[key].value for key in common}
        inside = self._results(members, pieces, values)
        if inside is None:
            self._table.note("unsplit", DEPENDENT)
            return
        family = Family(members, inside[first.key], pieces.lengths, level,
                        operands=operands, inside=inside, sources=sources)  # fmt: skip
        if self._largest(family, windows=False) <= OVERLAP * self._table.sizes.largest:
            self._add(family)
        else:
            self._table.note("unsplit", LARGE)

    def _results(self, members: Mapping[Place, Any], pieces: Family,
                 values: Mapping[Any, Any]) -> dict[Any, Any] | None:  # fmt: skip
        """Return what the first of some tasks returns, by what it is given, and those inside."""
        task, shapes = self._apart[next(iter(members.values()))]
        ways: Iterable[Mapping[Any, Any]] = [{}]
        if shapes:
            ways = divisions(
                [self._apart[key][1] for key in members.values()],
                [tuple(map(getitem, pieces.lengths, place)) for place in members],
            )
        for way in ways:
            inside = results(task, {**values, **way}, reduces=True)
            value = None if inside is None else inside.get(task.key)
            divided = value.piece if type(value) is Reduced else value
            if type(divided) is Divided and len(divided.axes) == len(pieces.divided.axes):
                whole: dict[Any, Any] = {
                    k: DataNode(k, pieces.whole(each, shapes[k]) if type(each) is Divided else each)
                    for k, each in way.items()
                }
                made: Task = task.substitute(whole)
                self._whole[task.key] = made
                return inside
        return None

    def _taken_by(self, keys: tuple[Any, ...], pieces: Family) -> Family:
        """Return the family of tasks that take what is computed with pieces, in their order."""
        if keys not in self._taken:
            each = [taken for key in keys for taken in self._takes(key) or ()]
            whole, made = united(each)
            told = self._table.sizes.lengths(self._tasks, each[0].source)
            if made and told is not None:
                self._table.sizes.add(whole.source[0], told[0], whole.lengths)
            self._taken[keys] = Family(
                dict(zip(pieces.members, keys, strict=True)),
                Divided(len(whole.lengths), (whole.axis,)), pieces.lengths, 0, taken=whole,
                made=made, sources=frozenset(t.source for t in each) if made else frozenset(),
            )  # fmt: skip
        return self._taken[keys]

    def _largest(self, family: Family, windows: bool = True) -> int:
        """Return the bytes of the largest array that a task of a whole chunk makes, if known.

        Parameters
        ----------
        family
            The task's.
        windows
            Whether those count that windows are.
        """
        taken = [each for each in family.operands if each.taken is not None]
        wholes = [whole for each in [family, *taken] for whole in self._wholes(each)
                  if windows or not _are_windows(each, *whole)]  # fmt: skip
        return max([itemsize * math.prod(shape) for _, itemsize, shape in wholes], default=0)

    def _wholes(self, family: Family) -> list[tuple[Any, int, Place]]:
        """Return what tasks make of pieces: keys, and bytes of an element and shapes of wholes."""
        sizes = self._table.sizes
        of = family.first if family.taken is None else family.taken.source
        of = family.value.key if isinstance(family.value, Reduced) else of
        made = {
            key: (value, sizes.lengths({}, layer_of(key))) for key, value in family.inside.items()
        }
        made[family.first] = family.divided, sizes.lengths(self._tasks, of)
        return [
            (key, told[0], family.whole(divided, told[1]))
            for key, (divided, told) in made.items()
            if told is not None and type(divided) is Divided and len(told[1]) == divided.ndim
        ]

    # What becomes whole ---------------------------------------------------------------------

    def _find_trees(self) -> None:
        """Note trees of results that are of all pieces of some chunks each."""
        reduced = [family for family in self._families if type(family.value) is Reduced]
        firsts = {k: last_task(self._tasks[k]) for f in reduced for k in f.members.values()}
        for tree in trees_of(self._table, firsts) if firsts else ():
            families = list(dict.fromkeys(self._places[key][0] for key in tree.leaves))
            complete = sum(len(each.members) for each in families) == len(tree.leaves)
            if complete and not (tree.between and len(families) > MOST):
                self._trees[tree.root] = tree
                for family in families:
                    family.link(families[0])

    def _judge(self) -> Joins:
        """Note what cannot be whole; return what joins the results, of whole chunks."""
        between = {key for tree in self._trees.values() for key in tree.between}
        joins: dict[Any, list[tuple[Any, Grid | None]]] = {}
        for family in self._families:
            for other in family.operands:
                family.link(other)
        for key, node in self._tasks.items():
            if key in between:
                continue
            if key in self._places:
                own = self._places[key][0]
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
        waiting = [family for family in self._families if not family.able]
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
        found = [self._places[key][0] for key in keys if key in self._places]
        return [family for family in found if not family.given]

    def _grid(self, keys: Mapping[Place, Any]) -> Grid | None:
        """Return what an array's chunks are whole; None if that does not fit."""
        places = {}
        for index, key in keys.items():
            found = self._places.get(key)
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
                for between in tree.between:
                    del tasks[between]
                names = dict.fromkeys(whole[leaf] for leaf in tree.leaves)
                tasks[key] = tree.joining(self._table, [*names])
        drop(tasks, [key for f in given for key in f.members.values()], self._wanted)
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
        node = self._whole[family.first]
        taken = {o.first: o.name for o in family.operands if o.taken is not None}
        names = {k: taken.get(k) or whole[k] for k in node.dependencies if not self._is_common(k)}
        made: Task = node.substitute(names, key=family.name)
        return made

    def _note(self, family: Family) -> None:
        """Note the sizes of what is whole, and of the tasks inside, which keep their names.

        There are no more windows at a time than a piece has, whose size is known.
        """
        fused = not family.given and self._tasks[family.first].func is execute_subgraph
        for key, itemsize, shape in self._wholes(family):
            if _are_windows(family, key, itemsize, shape):
                continue
            names = [family.name[0]] * (key == family.first) + [layer_of(key)] * fused
            for name in names:
                self._table.sizes.add(name, itemsize, shape)


def _are_windows(family: Family, key: Any, itemsize: int, shape: Place) -> bool:
    """Return whether an array inside a task has more axes than its operands: those of windows.

    Those of float16 count as other arrays do: their sums are rounded, and run on no blocks.
    """
    operands = [each.divided.ndim for each in family.operands]
    half = itemsize == np.dtype(np.float16).itemsize
    return not half and key != family.first and len(shape) > max(operands, default=len(shape))


def _chunks_of(node: Any) -> Sequence[Any]:
    """Return the nested lists of chunks that a task joins, array by array."""
    if type(node) is Task and node.func is concatenate3:
        return node.args if len(node.args) == 1 and not node.kwargs else []
    return joined(node)


def cut_chunks(
    tasks: Mapping[Any, Any], counts: Callable[[Any, Task], bool]
) -> Iterator[tuple[Any, dict[Any, tuple[slice, ...]], Any]]:
    """Yield chunks that are cut into pieces of which each element is in one: key, pieces, and grid.

    Parameters
    ----------
    tasks
        dask's nodes by key.
    counts
        Returns whether a task may be one that cuts a piece, by its key and its node.
    """
    found: defaultdict[Any, dict[Any, tuple[slice, ...]]] = defaultdict(dict)
    for key, node in tasks.items():
        index = piece_of(node)
        if index is not None and counts(key, node):
            (source,) = node.dependencies
            found[source, layer_of(key), len(index)][key] = index
    for (source, _, ndim), group in found.items():
        grid = grid_of(group, ndim)
        if grid is not None:
            yield source, group, grid


def _levels(tasks: Mapping[Any, Any], given: Mapping[Any, Any]) -> Iterator[tuple[Any, int]]:
    """Yield what may be computed of pieces, and how many tasks after them it is at most."""
    levels: dict[Any, int] = {}
    for key in depth_first(tasks, lambda key: [k for k in tasks[key].dependencies if k in tasks]):
        before = [levels[k] for k in tasks[key].dependencies if k in levels]
        if before or key in given:
            levels[key] = 1 + max(before, default=-1)
            if key not in given:
                yield key, levels[key]


def _told(value: Any) -> Any:
    """Return what is the same for equal literals; for those of other kinds, for the same one."""
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_told, value))
    if type(value) is slice:
        return slice, _told(value.start), _told(value.stop), _told(value.step)
    return (type(value), value) if type(value) in (int, str, bool) else id(value)
