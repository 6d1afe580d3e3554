"""Pieces of large chunks, all computed with alike -> the chunks, computed with as they were.

dask cuts chunks into pieces to make their results fit each other (`unify_chunks`), or for fear of
what a function makes of them (`sliding_window_view`), and each piece goes a way of its own to the
result, three or four tasks long. Where all pieces of a chunk go the same way, and what is computed
of each position comes from that position alone (`gpusched.graph.independence`), the chunk may as
well go it: a rolling mean of 10 chunks was 1,408 tasks, and is 59.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise, product
from operator import getitem
from typing import Any

import numpy as np
from dask.array.core import finalize
from dask.utils import key_split

from gpusched.adapters.tasks import DataNode, List, Task, TaskRef, execute_subgraph, is_container
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.graph.batch_limits import threads
from gpusched.graph.cutting import cuts_of
from gpusched.graph.independence import Divided, results
from gpusched.graph.merging import block_of
from gpusched.graph.signature import Signatures
from gpusched.graph.subgraph import layer_of
from gpusched.graph.table import Table

FEW = GraphBreak.FEW_CHUNKS("fewer chunks that are cut into pieces than threads")
UNKNOWN = GraphBreak.UNKNOWN_SIZE("pieces of a chunk of unknown length, or no array of NumPy's")
SOME = GraphBreak.IN_PIECES("the same is not computed of all pieces of a chunk")
DEPENDENT = GraphBreak.IN_PIECES("a function that may compute an element from others")
NEEDED = GraphBreak.IN_PIECES("a task that needs the results in pieces")
LARGE = GraphBreak.LARGE("whole results larger than any chunk of the graph")

Place = tuple[int, ...]
"""Of a piece in the grid of its chunk's pieces."""


def unsplit(table: Table) -> Table:
    """Return a graph in which chunks stay whole that would be computed with in pieces, all alike.

    Parameters
    ----------
    table
        The graph.

    Notes
    -----
    Nothing becomes larger than the graph's largest chunk, and there are as many whole chunks as
    threads at least. Each task and each edge is looked at a constant number of times.
    """
    return _Unsplitting(table).run()


@dataclass(eq=False)
class _Family:
    """Tasks that do the same with all pieces of one chunk."""

    members: dict[Place, Any]
    """Their keys, in the order of the grid."""
    divided: Divided
    """What each returns."""
    lengths: tuple[tuple[int, ...], ...]
    """How long the pieces are, by divided axis."""
    level: int
    """More than those of the families that it takes pieces of."""
    cut: tuple[Any, tuple[slice, ...]] | None = None
    """The chunk, and which part of it all are, if they do nothing but cut it."""
    operands: list[_Family] = field(default_factory=list)
    inside: dict[Any, Any] = field(default_factory=dict)
    """What the tasks inside the first member return."""
    ranks: dict[Any, int] = field(default_factory=dict)
    """Numbers of its tasks among those of the same layer: a fused one may have several."""
    component: _Component | None = None

    @property
    def first(self) -> Any:
        """The key of the member at the beginning of the grid."""
        return next(iter(self.members.values()))

    def name(self, key: Any) -> Any:
        """Return what the whole of a member's or of a task's in it is called."""
        rank = self.ranks.get(key, 0)
        told = repr((layer_of(key), rank, self.divided.axes, self.lengths, len(self.members)))
        digest = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
        return (f"{key_split(key)}-whole-{digest}", *block_of(self.first))

    def whole(self, divided: Divided, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the whole of which pieces of a shape are."""
        found = list(shape)
        for axis, lengths in zip(divided.axes, self.lengths, strict=True):
            found[axis] = sum(lengths)
        return tuple(found)


class _Component:
    """Families that stay in pieces, or become whole, together."""

    def __init__(self) -> None:
        self.into: _Component | None = None
        self.able = True

    def root(self) -> _Component:
        found = self
        while found.into is not None:
            found = found.into
        return found

    def join(self, other: _Component) -> None:
        first, second = self.root(), other.root()
        if first is not second:
            second.into = first
            first.able = first.able and second.able


class _Unsplitting:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._tasks = table.tasks
        self._wanted = set(table.wanted)
        self._places: dict[Any, tuple[_Family, Place]] = {}
        self._families: list[_Family] = []
        self._signatures = Signatures()

    def run(self) -> Table:
        self._find_cuts()
        if self._may_have_others():
            self._find_others()
        whole = [f for f in self._families if f.cut is None]
        if not whole:
            return self._table
        joins = self._judge()
        found = len(whole)
        whole = [f for f in whole if f.component is not None and f.component.root().able]
        if len(whole) < found:
            self._table.note("unsplit", NEEDED, found - len(whole))
        cut = {id(o): o for f in whole for o in f.operands if o.cut is not None}
        sources = {f.cut[0] for f in cut.values() if f.cut is not None}
        if not whole:
            return self._table
        if len(sources) < threads():
            self._table.note("unsplit", FEW)
            return self._table
        return self._rewritten([*cut.values(), *whole], joins)

    # What may be whole ----------------------------------------------------------------------

    def _find_cuts(self) -> None:
        """Note the chunks that are cut into pieces of which each element is in one."""
        found: defaultdict[Any, dict[Any, tuple[slice, ...]]] = defaultdict(dict)
        for key, node in self._tasks.items():
            if type(node) is Task and len(node.dependencies) == 1 and self._may_go(key, node):
                index = _piece(node)
                if index is not None:
                    (source,) = node.dependencies
                    found[source, layer_of(key), len(index)][key] = index
        for (source, _, ndim), group in found.items():
            grid = _grid(group, ndim)
            if grid is None:
                continue  # They are not a whole together.
            axes, lengths, members, whole = grid
            if self._are_inside(source, whole):
                family = _Family(members, Divided(ndim, axes), lengths, 0, (source, whole))
                self._add(family)
            else:
                self._table.note("unsplit", UNKNOWN)

    def _are_inside(self, source: Any, whole: tuple[slice, ...]) -> bool:
        """Return whether pieces are of an array of NumPy's or CuPy's, and end where it does.

        Of other types, an operator may be another one, such as a product of matrices, and what is
        not an array yet is read in pieces since there is a lot of it. Pieces of a shorter chunk may
        be broadcast where the whole would not be: chunks are as long as dask has noted.
        """
        node = self._tasks.get(source)
        if type(node) is DataNode and type(node.value) is not np.ndarray:
            return False
        told = self._table.sizes.lengths(self._tasks, source)
        return (
            told is not None
            and len(told[1]) == len(whole)
            and all(each.stop <= length for each, length in zip(whole, told[1], strict=True))
        )

    def _may_go(self, key: Any, node: Task) -> bool:
        sizes = self._table.sizes
        return key not in self._wanted and not node.data_producer and not sizes.is_annotated(node)

    def _add(self, family: _Family) -> None:
        self._families.append(family)
        for place, key in family.members.items():
            self._places[key] = family, place

    def _may_have_others(self) -> bool:
        """Return whether a task takes nothing but pieces of one place, by a scan of one place.

        Not the first one: on its diagonal, a transposed grid has the same places.
        """
        sources = {f.cut[0] for f in self._families if f.cut is not None}
        second = {list(f.members.values())[1] for f in self._families}
        found = any(node.dependencies and second.issuperset(node.dependencies)
                    for node in self._tasks.values())  # fmt: skip
        if found and len(sources) < threads():
            self._table.note("unsplit", FEW)
            return False
        return found

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
        taken = [self._places[each] for each in node.dependencies if each in self._places]
        if not taken or len(taken) < len(node.dependencies):
            return None
        family, place = taken[0]
        if any(each[1] != place or each[0].lengths != family.lengths for each in taken):
            return None
        signature, inputs = self._signatures.of(node)
        slots = tuple([
            id(self._places[each.key][0]) if type(each) is TaskRef else _told(each)
            for each in inputs
        ])  # fmt: skip
        return (signature, slots, layer_of(key)), place

    def _found(self, group: dict[Place, Any], level: int) -> None:
        """Note tasks of one form, if there is one for each piece."""
        node = self._tasks[next(iter(group.values()))]
        operands = list(dict.fromkeys(self._places[each][0] for each in node.dependencies))
        places = operands[0].members
        if len(group) < len(places):
            # Where a task takes pieces of several places, each group is of one.
            if len(group) > 1:
                self._table.note("unsplit", SOME)
            return
        members = {place: group[place] for place in places}
        first = self._tasks[next(iter(members.values()))]
        inside = results(
            first, {each: self._places[each][0].divided for each in first.dependencies}
        )
        divided = None if inside is None else inside.get(first.key)
        axes = operands[0].divided.axes
        if inside is None or type(divided) is not Divided or len(divided.axes) != len(axes):
            self._table.note("unsplit", DEPENDENT)
            return
        tasks = first.args[0] if first.func is execute_subgraph else ()
        alike = _ranks([*tasks, *(key for key in inside if key not in tasks)])
        family = _Family(
            members, divided, operands[0].lengths, level, None, operands, inside, alike
        )
        if self._largest(family) <= self._table.sizes.largest:
            family.component = _Component()
            self._add(family)
        else:
            self._table.note("unsplit", LARGE)

    def _largest(self, family: _Family) -> int:
        """Return the bytes of the largest array that a task of a whole chunk makes, if known."""
        wholes = self._wholes(family)
        return max([itemsize * math.prod(shape) for _, itemsize, shape in wholes], default=0)

    def _wholes(self, family: _Family) -> list[tuple[Any, int, Place]]:
        """Return what tasks make of pieces: keys, and bytes of an element and shapes of wholes."""
        sizes = self._table.sizes
        made = {family.first: (family.divided, sizes.lengths(self._tasks, family.first))}
        made |= {key: (value, sizes.lengths({}, key)) for key, value in family.inside.items()}
        return [
            (key, told[0], family.whole(divided, told[1]))
            for key, (divided, told) in made.items()
            if told is not None and type(divided) is Divided and len(told[1]) == divided.ndim
        ]

    # What becomes whole ---------------------------------------------------------------------

    def _judge(self) -> dict[Any, Any]:
        """Note what cannot be whole; return what joins the results, of whole chunks."""
        joins: dict[Any, Any] = {}
        for family in self._families:
            for other in family.operands:
                if family.component is not None and other.component is not None:
                    family.component.join(other.component)
        for key, node in self._tasks.items():
            if key in self._places:
                own = self._places[key][0]
                if own.cut is None:
                    continue
            taken = [self._places[k][0] for k in node.dependencies if k in self._places]
            taken = [family for family in taken if family.component is not None]
            if not taken:
                continue
            first = taken[0].component
            assert first is not None
            made = self._joined(node) if type(node) is Task and node.func is finalize else None
            if made is not None:
                joins[key] = made
            for family in taken:
                assert family.component is not None
                # What one task needs in pieces, all that are computed with them need in pieces.
                family.component.root().able &= made is not None
                family.component.join(first)
        return joins

    def _joined(self, node: Task) -> Any:
        """Return what a task that joins all chunks is given instead; None if that does not fit."""
        if len(node.args) != 1:
            return None
        (chunks,) = node.args
        places: dict[Place, Any] = {}
        for index, each in _leaves(chunks):
            found = self._places.get(each.key) if type(each) is TaskRef else None
            if found is None or found[0].component is None:
                return None
            places[index] = found
        return _coarse(places)

    def _rewritten(self, families: list[_Family], joins: Mapping[Any, Any]) -> Table:
        """Return the graph with these families whole."""
        tasks = dict(self._tasks)
        whole: dict[Any, Any] = {}
        for family in families:
            whole |= dict.fromkeys(family.members.values(), family.name(family.first))
        for family in families:
            self._note(family)
            if family.cut is not None:
                source, index = family.cut
                name = whole[family.first]
                tasks[name] = Task(name, getitem, TaskRef(source), index)
                continue
            for key in family.members.values():
                del tasks[key]
            made = self._made(family, whole)
            tasks[made.key] = made
        for key, made in joins.items():
            nested = _nested(made, whole)
            if nested is not None:
                tasks[key] = Task(key, self._tasks[key].func, nested)
        users = {each for node in tasks.values() for each in node.dependencies}
        for family in families:
            if family.cut is not None:
                for key in family.members.values():
                    if key not in users:
                        del tasks[key]
        return replace(self._table, tasks=tasks)

    def _made(self, family: _Family, whole: Mapping[Any, Any]) -> Task:
        """Return the task that does for the whole what the members do for the pieces."""
        node, name = self._tasks[family.first], whole[family.first]
        node = node.substitute({k: whole[k] for k in node.dependencies}, key=name)
        if node.func is not execute_subgraph or not isinstance(node.args[1], tuple):
            return node
        # The tasks inside make chunks of other sizes than those of their names.
        inside, wanted, keys, *values = node.args
        names = {key: family.name(key) for key in inside if isinstance(key, tuple)}
        renamed = {
            names.get(key, key): each.substitute(names, key=names.get(key, key))
            for key, each in inside.items()
        }
        return Task(name, execute_subgraph, renamed, names[wanted], keys, *values)

    def _note(self, family: _Family) -> None:
        """Note the sizes of what is whole."""
        for key, itemsize, shape in self._wholes(family):
            self._table.sizes.add(family.name(key)[0], itemsize, shape)


def _piece(node: Task) -> tuple[slice, ...] | None:
    """Return which slices of a chunk a task cuts off, if it does no more."""
    cuts = cuts_of(node)
    if len(cuts) != 1:
        return None
    index = cuts[0][1]
    plain = all(
        type(i) is slice and i.step is None and type(i.start) is int and type(i.stop) is int
        and 0 <= i.start < i.stop for i in index
    )  # fmt: skip
    return index if plain else None


def _grid(group: Mapping[Any, tuple[slice, ...]], ndim: int) -> Any:
    """Return how pieces divide a chunk; None if they do not, each element being in one of them."""
    if len(group) < 2:
        return None
    along = [
        sorted({(i[axis].start, i[axis].stop) for i in group.values()}) for axis in range(ndim)
    ]
    if any(first[1] != second[0] for each in along for first, second in pairwise(each)):
        return None
    axes = tuple([axis for axis in range(ndim) if len(along[axis]) > 1])
    numbers = [{bounds: k for k, bounds in enumerate(along[axis])} for axis in axes]
    found = {}
    for key, index in group.items():
        bounds = [(index[axis].start, index[axis].stop) for axis in axes]
        found[tuple([n[b] for n, b in zip(numbers, bounds, strict=True)])] = key
    places = list(product(*(range(len(along[axis])) for axis in axes)))
    if not axes or len(found) < len(group) or len(found) < len(places):
        return None
    lengths = tuple([tuple([stop - start for start, stop in along[axis]]) for axis in axes])
    whole = tuple([slice(each[0][0], each[-1][1]) for each in along])
    return axes, lengths, {place: found[place] for place in places}, whole


def _levels(tasks: Mapping[Any, Any], given: Mapping[Any, Any]) -> Iterator[tuple[Any, int]]:
    """Yield what may be computed of pieces, and how many tasks after them it is at most."""
    users: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, node in tasks.items():
        for other in node.dependencies:
            users[other].append(key)
    levels: dict[Any, int] = {}
    waiting = list(given)
    reached = set(waiting)
    while waiting:
        for user in users[waiting.pop()]:
            if user not in reached:
                reached.add(user)
                waiting.append(user)
    missing = {k: sum(o in reached for o in tasks[k].dependencies) for k in reached}
    ready = [key for key in reached if not missing[key]]
    while ready:
        key = ready.pop()
        level = levels[key] = 1 + max((levels[k] for k in tasks[key].dependencies if k in levels),
                                      default=-1)  # fmt: skip
        if key not in given:
            yield key, level
        for user in users[key]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)


def _ranks(keys: Sequence[Any]) -> dict[Any, int]:
    """Return the number of each key among those of its layer."""
    counted: dict[str, int] = defaultdict(int)
    found = {}
    for key in sorted(keys, key=str):
        found[key] = counted[layer_of(key)]
        counted[layer_of(key)] += 1
    return found


def _told(value: Any) -> Any:
    """Return what is the same for equal literals; for those of other kinds, for the same one."""
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_told, value))
    if type(value) is slice:
        return slice, _told(value.start), _told(value.stop), _told(value.step)
    return (type(value), value) if type(value) in (int, str, bool) else id(value)


def _leaves(chunks: Any, index: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield what nested lists hold, and where."""
    if is_container(chunks):
        for k, each in enumerate(chunks.args):
            yield from _leaves(each, (*index, k))
    else:
        yield index, chunks


def _coarse(places: Mapping[Place, tuple[_Family, Place]]) -> dict[Place, _Family] | None:
    """Return the grid of whole chunks of which there is a grid of pieces; None if there is none."""
    ndim = len(next(iter(places)))
    edges: list[list[int]] = []
    for axis in range(ndim):
        length = 1 + max(index[axis] for index in places)
        line = [places.get(tuple([k if a == axis else 0 for a in range(ndim)]), (None,))[0]
                for k in range(length)]  # fmt: skip
        edges.append([0, *(k + 1 for k, (a, b) in enumerate(pairwise(line)) if a is not b), length])
    found = {}
    for index in product(*(range(len(each) - 1) for each in edges)):
        ends = [(each[k], each[k + 1]) for each, k in zip(edges, index, strict=True)]
        inside = [places.get(p) for p in product(*(range(*each) for each in ends))]
        family = None if inside[0] is None else inside[0][0]
        if family is None or len(inside) != len(family.members) or family.divided.ndim != ndim:
            return None
        # The grid has the other axes, too: along them there is one piece.
        counts = [stop - start for start, stop in ends]
        wide = [counts[axis] for axis in family.divided.axes]
        if wide != list(map(len, family.lengths)):
            return None
        if any(e is None or e[0] is not family or e[1] != p
               for e, p in zip(inside, family.members, strict=True)):  # fmt: skip
            return None
        found[index] = family
    return found


def _nested(grid: Mapping[Place, _Family], whole: Mapping[Any, Any]) -> Any:
    """Return the keys of whole chunks as nested lists; None if some stay in pieces."""
    if any(family.first not in whole for family in grid.values()):
        return None

    def rows(index: Place, shape: Sequence[int]) -> Any:
        if not shape:
            return TaskRef(whole[grid[index].first])
        return List(*(rows((*index, k), shape[1:]) for k in range(shape[0])))

    return rows((), [1 + max(axis) for axis in zip(*grid, strict=True)])
