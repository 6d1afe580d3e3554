"""Families: tasks that do the same with all pieces of one chunk, and the grids that they make."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise, product
from operator import getitem
from typing import Any

from dask.utils import key_split

from gpusched.adapters.arrays import take
from gpusched.adapters.tasks import DataNode, List, Task, TaskRef
from gpusched.dataclass import dataclass
from gpusched.graph.functions.independence import Divided, Reduced
from gpusched.graph.passes.table import block_of
from gpusched.graph.passes.taking import Taken, digest
from gpusched.graph.subgraph import layer_of

Place = tuple[int, ...]
"""Of a piece in the grid of its chunk's pieces."""


@dataclass(eq=False)
class Family:
    """Tasks that do the same with all pieces of one chunk."""

    members: dict[Place, Any]
    """Their keys, in the order of the grid."""
    value: Divided | Reduced
    """What each returns."""
    lengths: tuple[tuple[int, ...], ...]
    """How long the pieces are, by divided axis."""
    level: int
    """More than those of the families that it takes pieces of."""
    cut: tuple[Any, tuple[slice, ...]] | None = None
    """The chunk, and which part of it all are, if they do nothing but cut it."""
    taken: Taken | None = None
    """What all take of a chunk, one place after the other, if they do nothing but that."""
    made: list[Any] = field(default_factory=list)
    """The task that makes this chunk, where they take of several."""
    operands: list[Family] = field(default_factory=list)
    """Those that have pieces for it, and those that take what it is computed with."""
    inside: dict[Any, Any] = field(default_factory=dict)
    """What the first member returns, and the tasks inside."""
    able: bool = True
    """Whether it may become whole."""
    linked: list[Family] = field(default_factory=list)
    """Those that stay in pieces if it does."""
    sources: frozenset[Any] = frozenset()
    """The chunks of which these are pieces, or are computed of pieces."""

    @property
    def divided(self) -> Divided:
        """What each returns, or reduces in the end."""
        return self.value.piece if isinstance(self.value, Reduced) else self.value

    @property
    def given(self) -> bool:
        """Whether others compute with what it cuts or takes."""
        return self.cut is not None or self.taken is not None

    @property
    def first(self) -> Any:
        """The key of the member at the beginning of the grid."""
        return next(iter(self.members.values()))

    @property
    def name(self) -> Any:
        """What the whole is called."""
        key = self.first
        told = repr((layer_of(key), self.divided.axes, self.lengths, len(self.members)))
        if self.taken is not None:
            # One task may take for two families: the first member's key does not tell them apart.
            told += digest([self.taken])
        code = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
        return (f"{key_split(key)}-whole-{code}", *block_of(key))

    def whole(self, divided: Divided, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the whole of which pieces of a shape are."""
        found = list(shape)
        for axis, lengths in zip(divided.axes, self.lengths, strict=True):
            found[axis] = sum(lengths)
        return tuple(found)

    def count(self, axis: int) -> int:
        """Return how many pieces there are along an axis."""
        lengths = dict(zip(self.divided.axes, self.lengths, strict=True))
        return len(lengths.get(axis, (0,)))

    def nodes(self) -> dict[Any, Any]:
        """Return the nodes that make the whole of what others are given."""
        name = self.name
        if self.cut is not None:
            source, index = self.cut
            return {name: Task(name, getitem, TaskRef(source), index)}
        assert self.taken is not None
        # As dask has it: an index beside a number.
        # Chunks that are taken of by the same positions share them: one kernel may read of all.
        name_of_positions = f"positions-{digest([self.taken._replace(source=None)])}"
        positions = DataNode(name_of_positions, (1, self.taken.indices()))
        made = Task(name, take, TaskRef(self.taken.source), TaskRef(positions.key))
        return {node.key: node for node in (*self.made, positions, made)}

    def link(self, other: Family) -> None:
        """Note that if one family stays in pieces, the other one does, unless it is given."""
        if not self.given and not other.given and self is not other:
            self.linked.append(other)
            other.linked.append(self)


def family_of(source: Any, group: Mapping[Any, tuple[slice, ...]], ndim: int) -> Family | None:
    """Return the pieces of a chunk; None if they do not divide it, each element being in one."""
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
    members = {place: found[place] for place in places}
    return Family(members, Divided(ndim, axes), lengths, 0, cut=(source, whole),
                  sources=frozenset([source]))  # fmt: skip


def coarse(places: Mapping[Place, tuple[Family, Place]]) -> dict[Place, Family] | None:
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


def nested(grid: Mapping[Place, Family], whole: Mapping[Any, Any]) -> Any:
    """Return the keys of whole chunks as nested lists; None if some stay in pieces."""
    if any(family.first not in whole for family in grid.values()):
        return None

    def rows(index: Place, shape: Sequence[int]) -> Any:
        if not shape:
            return TaskRef(whole[grid[index].first])
        return List(*(rows((*index, k), shape[1:]) for k in range(shape[0])))

    return rows((), [1 + max(axis) for axis in zip(*grid, strict=True)])
