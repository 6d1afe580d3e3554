"""Small pieces of one large chunk, a task each -> one task that cuts all of them.

Programs with overlaps (`map_overlap`) cut edges and corners off every chunk for its neighbours:
eight pieces of a plane's chunk, 26 of a block's. Cutting takes less time than a scheduler's task:
ten steps of heat conduction are 181 tasks rather than 671.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from dask.array import chunk

from gpusched.adapters.tasks import Alias, Task, TaskRef, execute_subgraph
from gpusched.breaks import GraphBreak
from gpusched.graph.functions.known import Cut, pieces, together
from gpusched.graph.passes.table import OFF, Table, block_of, key_of
from gpusched.graph.subgraph import last_task, references

PART = 4
"""How many times as large as all its pieces a chunk must be."""

SHARE = 16
"""How many times as large as one piece all pieces of a chunk may be: who needs one is sent all."""

ANNOTATED = GraphBreak.ANNOTATED("a graph with annotations")
SMALL = GraphBreak.SMALL("chunks below gpusched.batching.chunk-bytes, or none whose size is known")
SENT = GraphBreak.KEPT("pieces of a chunk that are large together: who needs one is sent all")
LARGE = GraphBreak.LARGE("pieces that are large")

Lengths = tuple[int, ...]


def cut_together(table: Table, least: int, most: int) -> Table:
    """Return a graph in which one task cuts all small pieces of a large chunk.

    Parameters
    ----------
    table
        The graph.
    least
        Bytes of a large chunk at least.
    most
        Bytes of all pieces of a chunk at most.

    Notes
    -----
    The pieces are copies, which are kept until the last of them has been used, and sent together.
    Each task and each edge is looked at a constant number of times.
    """
    reason = None if most else OFF
    if table.sizes.annotated:
        reason = ANNOTATED
    elif most and table.sizes.largest < least:
        reason = SMALL
    if reason is not None:
        table.note("cut", reason)
        return table
    return _Cutting(table, least, most).run()


class _Piece(NamedTuple):
    large: Any
    """Key of the chunk that it is cut off."""
    itemsize: int
    lengths: Lengths
    """How long it is at most."""
    cuts: tuple[Cut, ...] = ()

    @property
    def nbytes(self) -> int:
        """Its bytes at most."""
        return self.itemsize * math.prod(self.lengths)


class _Cutting:
    def __init__(self, table: Table, least: int, most: int) -> None:
        self._table = table
        self._tasks = table.tasks
        self._kept = {*table.wanted, *table.held}
        """Keys of what stays until the end."""
        self._least = least
        self._most = most
        self._large: dict[Any, _Piece] = {}
        """Large chunks that something is cut off, whole."""
        self._pieces: dict[Any, _Piece | None] = {}

    def run(self) -> Table:
        groups: defaultdict[Any, dict[Any, _Piece]] = defaultdict(dict)
        for key in self._tasks:
            piece = self._piece(key)
            if piece is not None:
                groups[piece.large][key] = piece
        used = self._used_elsewhere()
        result, items = dict(self._tasks), list[Any]()
        for large, group in groups.items():
            outputs = sorted(used.intersection(group), key=lambda k: (_told(group[k]), str(k)))
            nbytes = sum(group[key].nbytes for key in outputs)
            if len(outputs) > 1 and nbytes <= min(self._most, self._large[large].nbytes // PART):
                for key in group:
                    del result[key]
                found = [group[key] for key in outputs]
                name = _name(large, found)
                cuts = tuple([piece.cuts for piece in found])
                result[name] = Task(name, pieces, TaskRef(large), cuts)
                for place, key in enumerate(outputs):
                    result[key] = Task(key, operator.getitem, TaskRef(name), place)
                items += outputs
            elif len(outputs) > 1:
                self._table.note("cut", SENT)
        return self._table.with_items(result, items)

    def _piece(self, key: Any) -> _Piece | None:
        """Return what a task cuts off a large chunk, if it does no more."""
        chain = []
        while key not in self._pieces and self._may_cut(key):
            chain.append(key)
            (key,) = self._tasks[key].dependencies
        for each in reversed(chain):
            self._pieces[each] = self._cut_off(key, self._tasks[each])
            key = each
        return self._pieces.get(key)

    def _may_cut(self, key: Any) -> bool:
        node = self._tasks.get(key)
        alone = type(node) is Task and len(node.dependencies) == 1 and not node.data_producer
        return alone and key not in self._kept

    def _cut_off(self, source: Any, task: Task) -> _Piece | None:
        cuts = cuts_of(task)
        piece = self._pieces.get(source) or (self._whole(source) if cuts else None)
        if not cuts or piece is None:
            return None
        lengths = _lengths_left(cuts, piece.lengths)
        if lengths is None:
            return None
        piece = piece._replace(lengths=lengths, cuts=piece.cuts + cuts)
        if piece.nbytes <= self._most // SHARE:
            return piece
        self._table.note("cut", LARGE)
        return None

    def _whole(self, key: Any) -> _Piece | None:
        """Return the whole of a large chunk."""
        if key not in self._large:
            last = last_task(self._tasks.get(key))
            if last is not None and last.func is together:
                return None  # What is taken of several results is a chunk, and no piece of one.
            told = self._table.sizes.lengths(self._tasks, key)
            if told is None or _Piece(key, *told).nbytes < self._least:
                unknown = told is None and self._table.unknown("pieces of a chunk", [key])
                self._table.note("cut", unknown or SMALL)
                return None
            self._large[key] = _Piece(key, *told)
        return self._large[key]

    def _used_elsewhere(self) -> set[Any]:
        """Return the keys of the pieces that others ask for than those who cut the same chunk."""
        found = set()
        for key, node in self._tasks.items():
            own = self._pieces.get(key)
            for other in node.dependencies:
                piece = self._pieces.get(other)
                if piece is not None and (own is None or own.large != piece.large):
                    found.add(other)
        return found


def _name(large: Any, found: list[_Piece]) -> Any:
    """Return a key for pieces of a chunk; all chunks that are cut alike have the same name."""
    layer = large[0] if type(large) is tuple else large
    return key_of("pieces", large, (layer, *map(_told, found)), block_of(large))


def _told(piece: _Piece) -> str:
    """Return the same text for the same cuts in all processes."""
    return repr([(cut.__module__, cut.__qualname__, index) for cut, index in piece.cuts])


def cuts_of(task: Task) -> tuple[Cut, ...]:
    """Return how a task cuts a piece off a chunk; nothing if it does something else.

    Examples
    --------
    >>> from operator import getitem
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.passes.cutting import cuts_of
    >>> cuts_of(Task("edge", getitem, TaskRef("x"), slice(2)))
    ((<built-in function getitem>, (slice(None, 2, None),)),)
    """
    if task.func is execute_subgraph:
        return _cuts_inside(task)
    # Functions of others may not be hashable.
    cuts = task.func is operator.getitem or task.func is chunk.getitem
    if not cuts or len(task.args) != 2 or task.kwargs:
        return ()
    source, index = task.args
    index = index if isinstance(index, tuple) else (index,)
    plain = all(isinstance(i, slice | Integral) and not isinstance(i, bool) for i in index)
    return ((task.func, index),) if plain and isinstance(source, TaskRef | Alias) else ()


def piece_of(node: Any) -> tuple[slice, ...] | None:
    """Return which slices of a chunk a task cuts off; None if it does something else."""
    cuts = cuts_of(node) if type(node) is Task and len(node.dependencies) == 1 else ()
    if len(cuts) != 1:
        return None
    index = cuts[0][1]
    plain = all(
        type(i) is slice and i.step is None and type(i.start) is int and type(i.stop) is int
        and 0 <= i.start < i.stop for i in index
    )  # fmt: skip
    return index if plain else None


def pieces_in(tasks: Mapping[Any, Any]) -> dict[Any, tuple[slice, ...]]:
    """Return which slices of a chunk each task of a graph cuts off that does nothing else."""
    found = ((key, piece_of(node)) for key, node in tasks.items())
    return {key: index for key, index in found if index is not None}


def cut_off(task: Task, large: Any, itemsize: int, lengths: Lengths) -> int | None:
    """Return the most bytes that a task reads of a chunk; None if it may read more than pieces.

    Parameters
    ----------
    task
        One of dask's.
    large
        Key of the chunk.
    itemsize, lengths
        Bytes of an element of the chunk, and how long that is at most.

    Examples
    --------
    >>> from operator import getitem
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.passes.cutting import cut_off
    >>> cut_off(Task("edge", getitem, TaskRef("x"), slice(2)), "x", 8, (1000, 5))
    80
    """
    found = []
    for node, name in _readers(task, large):
        cuts = cuts_of(node) if type(node) is Task and node.dependencies == {name} else ()
        left = _lengths_left(cuts, lengths)
        if not cuts or left is None:
            return None
        found.append(itemsize * math.prod(left))
    return sum(found) if found else None


def _readers(task: Task, large: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what reads a chunk in a task, and the key by which it has it."""
    if task.func is not execute_subgraph:
        yield task, large
        return
    inside, _, names, *given = task.args
    for name, value in zip(names, given, strict=True):
        if large in references(value):
            whole = [] if isinstance(value, TaskRef) else [(value, large)]
            yield from whole
            yield from ((node, name) for node in inside.values() if name in node.dependencies)


def _cuts_inside(task: Task) -> tuple[Cut, ...]:
    inside, key, _, *given = task.args
    left = dict(inside)
    found: tuple[Cut, ...] = ()
    while key in left:
        node = left.pop(key)
        cuts = cuts_of(node) if type(node) is Task else ()
        if not cuts and type(node) is not Alias:
            return ()
        found = cuts + found
        (key,) = node.dependencies
    return found if all(isinstance(value, TaskRef | Alias) for value in given) else ()


def _lengths_left(cuts: tuple[Cut, ...], lengths: Lengths) -> Lengths | None:
    """Return how long a piece is at most after some cuts; None if one is of too many axes."""
    for _, index in cuts:
        if len(index) > len(lengths):
            return None
        lengths = lengths_of_piece(index, lengths)
    return lengths


def lengths_of_piece(index: tuple[Any, ...], lengths: Lengths) -> Lengths:
    """Return how long a piece is at most of a chunk that is at most so long, by dimension.

    Parameters
    ----------
    index
        Slices and integers, one for a dimension.
    lengths
        Of the chunk.

    Examples
    --------
    >>> from gpusched.graph.passes.cutting import lengths_of_piece
    >>> lengths_of_piece((slice(None), slice(-2, None)), (100, 80))
    (100, 2)
    """
    pairs = zip(index, lengths, strict=False)
    left = [_length(each, length) for each, length in pairs if isinstance(each, slice)]
    return (*left, *lengths[len(index) :])


def _length(index: slice, length: int) -> int:
    given = index.start is not None and index.stop is not None
    if given and (index.start < 0) != (index.stop < 0):
        return length  # It may be longer of a shorter chunk.
    return len(range(*index.indices(length)))
