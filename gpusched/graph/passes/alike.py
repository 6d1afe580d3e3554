"""Tasks that do the same with all pieces of large chunks, found level by level."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import getitem
from typing import Any

import numpy as np

from gpusched.adapters.tasks import DataNode, Task, TaskRef
from gpusched.breaks import GraphBreak
from gpusched.graph.functions.independence import Divided, Reduced, results
from gpusched.graph.passes.families import Family, Place, family_of
from gpusched.graph.passes.shownshapes import ShownShapes, divisions
from gpusched.graph.passes.sizes import Sized
from gpusched.graph.passes.table import Table
from gpusched.graph.passes.taking import Lengths, Taken, taken_by, united
from gpusched.graph.subgraph import depth_first, layer_of

SHORTER = GraphBreak.NO_SIZE("pieces of a chunk that may be shorter than dask has noted")
SOME = GraphBreak.IN_PIECES("the same is not computed of all pieces of a chunk")
DEPENDENT = GraphBreak.IN_PIECES("a function that may compute an element from others")
LARGE = GraphBreak.LARGE("whole results more than a quarter larger than any chunk of the graph")

OVERLAP = 1.25
"""Times the largest chunk that a whole may be: a chunk with a few rows of its neighbours."""


class Families:
    """The families of a graph.

    Parameters
    ----------
    table
        The graph.
    pieces
        By the keys of tasks that do nothing else, which slices of a chunk they cut off.

    Notes
    -----
    First those that cut chunks are found, and then those that compute with pieces of others. Each
    task and each edge is looked at a constant number of times.
    """

    def __init__(self, table: Table, pieces: Mapping[Any, tuple[slice, ...]]) -> None:
        self._table = table
        self._tasks = table.tasks
        self._pieces = pieces
        self._wanted = set(table.wanted)
        self.places: dict[Any, tuple[Family, Place]] = {}
        """By the keys of members: their families, and where they are in the grids."""
        self.all: list[Family] = []
        self._takes_of: dict[Any, tuple[Taken, ...] | None] = {}
        self._others_take: dict[Any, Any] = {}
        """What tasks take that those may cut which take of them."""
        self._taking: dict[Any, tuple[Any, ...]] = {}
        """By task: the keys of those that take what it is computed with, in the order of use."""
        self._taken: dict[tuple[Any, ...], Family] = {}
        """By the keys of their members: families that take of a chunk."""
        self._shown = ShownShapes(table)
        self._apart: dict[Any, tuple[Task, dict[Any, tuple[int, ...]]]] = {}
        """By key: tasks without the shapes of chunks that show one element, and these shapes."""
        self.wholes: dict[Any, Task] = {}
        """By the key of the first member: what families do with wholes, but for their names."""
        self._sized = Sized(self._tasks)

    def find_cuts(self) -> None:
        """Note the chunks that are cut into pieces of which each element is in one."""
        found: defaultdict[Any, dict[Any, tuple[slice, ...]]] = defaultdict(dict)
        for key, index in self._pieces.items():
            node = self._tasks[key]
            if self._may_go(key, node):
                (source,) = node.dependencies
                found[source, layer_of(key), len(index)][key] = index
        for (source, _, ndim), group in found.items():
            family = family_of(source, group, ndim)
            if family is None:
                continue
            if self._are_inside(family):
                self._add(family)
            else:
                self._table.note("unsplit", self._table.unknown("pieces of a chunk", [source]))

    def _are_inside(self, family: Family) -> bool:
        """Return whether pieces are of an array of NumPy's or CuPy's, and end where it does.

        Of other types, an operator may be another one, such as a product of matrices, and what is
        not an array yet is read in pieces since there is a lot of it. Pieces of a shorter chunk may
        be broadcast where the whole would not be: chunks are as long as dask has noted.
        """
        assert family.cut is not None
        source, whole = family.cut
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
        self.all.append(family)
        for place, key in family.members.items():
            self.places[key] = family, place

    def may_have_others(self) -> bool:
        """Return whether a task takes nothing but pieces of one place, by a scan of one place.

        Not the first one: on its diagonal, a transposed grid has the same places. Differences of
        slices, of 900 chunks, take 1.1 times as long to optimise where all are looked at.
        """
        second = {list(f.members.values())[1] for f in self.all}
        return any(
            not second.isdisjoint(node.dependencies)
            and all(k in second or self._takes(k) for k in node.dependencies)
            for node in self._tasks.values()
        )

    def _takes(self, key: Any) -> tuple[Taken, ...] | None:
        """Return what a task takes of chunks, one after the other; None if it does more."""
        if key not in self._takes_of:
            node = self._tasks.get(key)
            may = type(node) is Task and self._may_go(key, node)
            taken = taken_by(node, self._tasks, self._lengths, self._others_take) if may else None
            self._takes_of[key] = taken
        return self._takes_of[key]

    def find_others(self) -> None:
        """Note what is computed of these pieces alike, level by level."""
        levels: dict[int, list[Any]] = defaultdict(list)
        for key, level in _levels(self._tasks, self.places):
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
        found = {k: self.places[k] for k in node.dependencies if k in self.places}
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
        if not all(self.is_common(k) or self._fits(k, family, place) for k in others):
            return None
        apart, shapes = self._apart[key] = self._shown.apart(node)
        form, inputs = self._table.forms.of(apart)
        slots = tuple([
            _told(each) if type(each) is not TaskRef
            else (each.key, len(shapes[each.key])) if each.key in shapes
            else id(found[each.key][0]) if each.key not in others
            else each.key if self.is_common(each.key)
            else self._slot(each.key)
            for each in inputs
        ])  # fmt: skip
        given = dict.fromkeys(each.key for each in inputs if type(each) is TaskRef)
        self._taking[key] = tuple(k for k in given if k in others and not self.is_common(k))
        return (form, slots, layer_of(key)), place

    def _is_taken(self, piece: Any) -> bool:
        """Return whether a piece may be taken of a chunk, by the chunk that it is cut off."""
        family, _ = self.places[piece]
        return self._takes(piece if family.cut is None else family.cut[0]) is not None

    def _fits(self, key: Any, family: Family, place: Place) -> bool:
        """Return whether a task takes as many positions of a chunk as pieces of a place have."""
        taken = self._takes(key)
        if taken is None or len(place) != 1:
            return False
        return sum(len(t.positions) for t in taken) == family.lengths[0][place[0]]

    def is_common(self, key: Any) -> bool:
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

        dask has noted one dtype for them, and that they are as long along the other axes. Days
        without their months' means, by dask alone, are 35 tasks so, and 93 with one chunk's means
        for each.
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
            self.places[k] for k in self._tasks[key].dependencies
            if k in self.places and k not in taking
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
        common = [k for k in first.dependencies if self.is_common(k)]
        given |= {k: self.places[k][0] for k in first.dependencies - {*given, *common}}
        operands = list(dict.fromkeys(given.values()))
        sources = frozenset().union(*(each.sources for each in operands))
        # A chunk of length 1 is broadcast as a whole, where none or one of its pieces is.
        if (len(operands) > 1 or self._apart[first.key][1]) and not self._sized(sources):
            self._table.note("unsplit", SHORTER)
            return
        values: dict[Any, Any] = {key: each.value for key, each in given.items()}
        values |= {key: self._tasks[key].value for key in common}
        inside = self._results(members, pieces, values)
        if inside is None:
            self._table.note("unsplit", DEPENDENT)
            return
        family = Family(members, inside[first.key], pieces.lengths, level,
                        operands=operands, inside=inside, sources=sources)  # fmt: skip
        if self.largest(family, windows=False) <= OVERLAP * self._table.sizes.largest:
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
            if inside is None:
                continue
            value = inside[task.key]
            divided = value.piece if type(value) is Reduced else value
            if type(divided) is Divided and len(divided.axes) == len(pieces.divided.axes):
                whole: dict[Any, Any] = {
                    k: DataNode(k, pieces.whole(each, shapes[k]) if type(each) is Divided else each)
                    for k, each in way.items()
                }
                made: Task = task.substitute(whole)
                self.wholes[task.key] = made
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

    def largest(self, family: Family, windows: bool = True) -> int:
        """Return the bytes of the largest array that a task of a whole chunk makes, if known.

        Parameters
        ----------
        family
            The task's.
        windows
            Whether those count that windows are.
        """
        taken = [each for each in family.operands if each.taken is not None]
        wholes = [whole for each in [family, *taken] for whole in self.sizes_of(each)
                  if windows or not are_windows(each, *whole)]  # fmt: skip
        return max([itemsize * math.prod(shape) for _, itemsize, shape in wholes], default=0)

    def sizes_of(self, family: Family) -> list[tuple[Any, int, Place]]:
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


def are_windows(family: Family, key: Any, itemsize: int, shape: Place) -> bool:
    """Return whether an array inside a task has more axes than its operands: those of windows.

    Those of float16 count as other arrays do: their sums are rounded, and run on no blocks.
    """
    operands = [each.divided.ndim for each in family.operands]
    half = itemsize == np.dtype(np.float16).itemsize
    return not half and key != family.first and len(shape) > max(operands, default=len(shape))


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
