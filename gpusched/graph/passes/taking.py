"""Tasks that take positions of chunks along one axis, by a list of them: `clim[month]`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from dask.array import chunk
from dask.utils import key_split

from gpusched.adapters.arrays import concatenate2, concatenate_arrays, take
from gpusched.adapters.tasks import DataNode, List, Task, TaskRef
from gpusched.graph.passes.table import block_of
from gpusched.graph.subgraph import evaluate, made_of

Lengths = tuple[int, ...]


class Taken(NamedTuple):
    """What a task takes of a chunk, all of it along the other axes."""

    source: Any
    """Key of the chunk."""
    lengths: Lengths
    """How long the chunk is at most."""
    axis: int
    """Where the positions are."""
    positions: np.ndarray[Any, Any]
    """Integers: which position of the chunk is at each position of what is taken."""

    def indices(self) -> tuple[Any, ...]:
        """Return what the chunk is indexed by."""
        axes = range(len(self.lengths))
        return tuple([self.positions if k == self.axis else slice(None) for k in axes])


def united(taken: Sequence[Taken]) -> tuple[Taken, list[Any]]:
    """Return as one what is taken, one after the other, of chunks that can be joined.

    With it comes the task that joins what is used of these chunks, if they are several.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.passes.taking import Taken, united
    >>> days = [Taken(("means", month), (1,), 0, np.array([0])) for month in (1, 0, 1)]
    >>> whole, (task,) = united(days)
    >>> whole.positions
    array([0, 1, 0])
    >>> task({("means", 0): np.array([0.5]), ("means", 1): np.array([1.5])})
    array([1.5, 0.5])
    """
    first, positions = taken[0], np.concatenate([each.positions for each in taken])
    numbers = {source: k for k, source in enumerate(dict.fromkeys(t.source for t in taken))}
    if len(numbers) == 1:
        return first._replace(positions=positions), []
    of = np.repeat([numbers[each.source] for each in taken], [len(t.positions) for t in taken])
    found, parts, start = np.empty(len(positions), np.intp), [], 0
    for source, number in numbers.items():
        # How long a chunk is need not be known.
        used, inside = np.unique(positions[of == number], return_inverse=True)
        found[of == number] = start + inside
        start += len(used)
        parts.append(first._replace(source=source, positions=used))
    name, block = f"{key_split(first.source)}-used-{digest(parts)}", block_of(first.source)
    takes = [Task((name, *block, k), take, TaskRef(part.source), (1, part.indices()))
             for k, part in enumerate(parts)]  # fmt: skip
    lists = List(*(TaskRef(each.key) for each in takes))
    joined = Task((name, *block), concatenate2, lists, axes=[first.axis])
    lengths = tuple([start if k == first.axis else n for k, n in enumerate(first.lengths)])
    whole = Taken(joined.key, lengths, first.axis, found)
    return whole, [Task.fuse(*takes, joined, key=joined.key)]


def digest(taken: Sequence[Taken]) -> str:
    """Return a digest that differs where something else is taken."""
    told = [(t.source, t.axis, len(t.lengths), t.positions.dtype.str, len(t.positions))
            for t in taken]  # fmt: skip
    found = hashlib.blake2b(repr(told).encode(), digest_size=16)
    for each in taken:
        found.update(each.positions.tobytes())
    return found.hexdigest()


def taken_by(node: Any, tasks: Mapping[Any, Any], lengths: Callable[[Any], Lengths | None],
             inner: dict[Any, Any] | None = None, deep: int = 2
             ) -> tuple[Taken, ...] | None:  # fmt: skip
    """Return what a task takes, one after the other, if it does nothing but that; or None.

    It may cut what is taken, and put in order what is taken of several chunks.

    Parameters
    ----------
    node
        The task.
    tasks
        dask's nodes by key.
    lengths
        Returns how long a chunk is at most by its key; None if it may be no array of NumPy's or
        CuPy's.
    inner
        By key and depth: what others take, which is noted here; None if only chunks may be given.
    deep
        How many others, one after the other, are looked at: links of chains are one.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.adapters.arrays import take
    >>> from gpusched.adapters.tasks import DataNode, Task, TaskRef
    >>> from gpusched.graph.passes.taking import taken_by
    >>> months = DataNode("months", (1, (np.array([0, 0, 1]), slice(None))))
    >>> days = Task("days", take, TaskRef("means"), TaskRef("months"))
    >>> (taken,) = taken_by(days, {"months": months}, {"means": (12, 5)}.get)
    >>> taken.positions
    array([0, 0, 1])
    """
    functions = [each.func for each in made_of(node) if type(each) is Task]
    if not functions or not all(any(f is each for each in _TAKING) for f in functions):
        return None
    if len(node.dependencies) > 2 and node.func is not concatenate_arrays:
        return None
    inner = inner if any(f is not take for f in functions) else None
    known: dict[Any, Any] = {}
    for each in node.dependencies:
        other = tasks.get(each)
        if type(other) is DataNode and type(other.value) is tuple:
            known[each] = other.value
            continue
        if inner is not None and (each, deep) not in inner:
            found = taken_by(other, tasks, lengths, inner if deep > 1 else None, deep - 1)
            inner[each, deep] = found and _Row(found)
        known[each] = (inner and inner[each, deep]) or _Chunk(each)

    def call(task: Task, args: list[Any], kwargs: dict[str, Any], key: Any) -> _Row:
        if task.func is concatenate_arrays and len(args) == 3 and not kwargs:
            return _in_order(*args)
        if kwargs or len(args) != 2:
            raise _OtherError
        if task.func is take:
            return _Row((_of_chunk(args[0], args[1], lengths),))
        if task.func is concatenate_arrays:
            raise _OtherError
        return _cut(args[0], args[1])

    try:
        made = evaluate(node, known, call)
    except _OtherError:
        return None
    return made.taken if type(made) is _Row else None


_TAKING = take, getitem, chunk.getitem, concatenate_arrays
"""Functions that take, cut, and put in order; those of others may not be hashable."""


def _of_chunk(array: Any, marked: Any, lengths_of: Callable[[Any], Lengths | None]) -> Taken:
    """Return what `dask.array._shuffle._getitem` takes."""
    if type(array) is not _Chunk or type(marked) is not tuple or len(marked) != 2:
        raise _OtherError
    index, lengths = marked[1], lengths_of(array.key)
    if type(index) is not tuple or lengths is None or len(index) != len(lengths):
        raise _OtherError
    arrays = [k for k, each in enumerate(index) if type(each) is np.ndarray]
    axis = arrays[0] if arrays else 0
    positions = index[axis]
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise _OtherError
    _check_whole(index, lengths, axis)
    return Taken(array.key, lengths, axis, positions)


class _Chunk(NamedTuple):
    key: Any


class _Row(NamedTuple):
    """What is taken of chunks, side by side along the axis of positions."""

    taken: tuple[Taken, ...]


class _OtherError(Exception):
    """A task that does something else."""


def _in_order(rows: Any, marked: Any, axis: Any) -> _Row:
    """Return what `dask.array._shuffle.concatenate_arrays` puts in order of what is taken."""
    if type(rows) is not list or not rows or any(type(row) is not _Row for row in rows):
        raise _OtherError
    parts = [part for row in rows for part in row.taken]
    around = {(t.lengths[:axis], t.lengths[axis + 1 :]) for t in parts} if type(axis) is int else ()
    sorter = marked[1] if type(marked) is tuple and len(marked) == 2 else None
    if len(around) != 1 or any(t.axis != axis for t in parts) or type(sorter) is not np.ndarray:
        raise _OtherError
    of = np.repeat(np.arange(len(parts)), [len(t.positions) for t in parts])
    if sorter.shape != of.shape or not len(of) or len({t.positions.dtype for t in parts}) > 1:
        raise _OtherError
    order = np.argsort(sorter)  # As dask calls it, whatever it is given.
    of, positions = of[order], np.concatenate([t.positions for t in parts])[order]
    ends = np.flatnonzero(np.diff(of)) + 1
    runs = zip(np.split(of, ends), np.split(positions, ends), strict=True)
    return _Row(tuple([parts[run[0]]._replace(positions=p) for run, p in runs if len(run)]))


def _cut(row: Any, index: Any) -> _Row:
    """Return a piece of what is taken, which is all of it along the other axes."""
    if type(row) is not _Row:
        raise _OtherError
    index = index if type(index) is tuple else (index,)
    found, begin = [], 0
    total = sum(len(t.positions) for t in row.taken)
    for part in row.taken:
        if len(index) > len(part.lengths) or not all(map(_is_plain, index)):
            raise _OtherError
        _check_whole(index, part.lengths, part.axis)
        if part.axis < len(index):
            start, stop, _ = index[part.axis].indices(total)
            own = part.positions[max(start - begin, 0) : max(stop - begin, 0)]
            begin += len(part.positions)
            part = part._replace(positions=own)
        found.append(part)
    return _Row(tuple([part for part in found if len(part.positions)] or found[:1]))


def _check_whole(index: tuple[Any, ...], lengths: Lengths, axis: int) -> None:
    """Raise `_OtherError` if an index leaves something out along other axes."""
    for k, (each, length) in enumerate(zip(index, lengths, strict=False)):
        whole = _is_plain(each) and not each.start and (each.stop is None or each.stop >= length)
        if k != axis and not whole:
            raise _OtherError


def _is_plain(index: Any) -> bool:
    """Return whether an index is a slice that counts from the beginning, one by one."""
    if type(index) is not slice or index.step not in (None, 1):
        return False
    return all(
        each is None or (type(each) is int and each >= 0) for each in (index.start, index.stop)
    )
