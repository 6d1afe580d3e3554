"""Chunks of a whole result -> written to their places in it by the tasks that compute them.

dask keeps all chunks until the last one is there, and then copies them into the whole array, in one
thread. A task whose chunk nobody else needs can copy it as soon as it is computed: other threads do
so at the same time, the chunk's memory is free for the next one, and there is never more than the
result and a few chunks.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from dask.array.core import finalize

from gpusched.adapters.tasks import Alias, Task, TaskRef, is_list
from gpusched.graph.program import Program
from gpusched.graph.table import Table, uses
from gpusched.roles import cluster_threads

LEAST = 4 << 20
"""Bytes of a result from which on it is assembled so."""

Place = tuple[slice, ...]


class Assembly:
    """The array that the chunks of one result are written to.

    Parameters
    ----------
    places
        Of the chunks in it, in the order of `dask.core.flatten`.

    Notes
    -----
    Thread-safe. The same graph may be run again, and by several threads at once. So each chunk is
    written once only: who comes second keeps its own, and the array goes to nobody but a run that
    has written all of what is in it. Until then no one else sees it.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._array: np.ndarray | None = None
        self._written: dict[int, np.ndarray] = {}
        self._begun: set[int] = set()

    def put(self, number: int, chunk: Any, place: np.ndarray | None) -> Any:
        """Return a chunk in its place, or as it is where it has none.

        Parameters
        ----------
        number
            Of the chunk.
        chunk
            What has been computed.
        place
            What `take` has returned for it before.
        """
        if chunk is not place:
            if type(chunk) is not np.ndarray or not _is_plain(chunk.dtype):
                return chunk
            place = self.take(number, chunk.dtype) if place is None else place
            if place is None or (place.shape, place.dtype) != (chunk.shape, chunk.dtype):
                return chunk  # Not of the size that dask has announced.
            place[...] = chunk
        self._written[number] = place
        return place

    def take(self, number: int, dtype: np.dtype | None = None) -> np.ndarray | None:
        """Return the place of a chunk, the first time somebody asks for it.

        Parameters
        ----------
        number
            Of the chunk.
        dtype
            Its own; None for that of the others, if there are some.
        """
        with self._lock:
            if number in self._begun:
                return None
            if self._array is None:
                if dtype is None:
                    return None
                shape = tuple(each.stop for each in self._places[-1])
                try:
                    self._array = np.empty(shape, dtype)
                except MemoryError:
                    return None  # There may be some when the chunks are joined.
            if dtype is not None and self._array.dtype != dtype:
                return None
            self._begun.add(number)
            return self._array[self._places[number]]

    def joined(self, chunks: Sequence[Any]) -> np.ndarray | None:
        """Return the whole array of all chunks; None if dask has to join them."""
        with self._lock:
            whole, written = self._array, self._written
            own = [written.get(k) is chunk for k, chunk in enumerate(chunks)]
            if whole is None or sum(own) < len(self._begun):
                return None
            first = chunks[0]
            for k, chunk in enumerate(chunks):
                if not own[k]:
                    place = whole[self._places[k]]
                    same = type(chunk) is np.ndarray and chunk.dtype == first.dtype == whole.dtype
                    if not same or chunk.shape != place.shape:
                        return None
                    place[...] = chunk
            self._start()
        return whole


def _is_plain(dtype: np.dtype) -> bool:
    """Return whether elements of a dtype are bytes that can be copied, and it says nothing more."""
    return not dtype.hasobject and dtype.metadata is None


class Assembled:
    """A task's function, whose result goes to its place.

    Notes
    -----
    Where it is sent, there is only the function.
    """

    def __init__(self, function: Callable[..., Any], assembly: Assembly, number: int) -> None:
        self.function = function
        self._assembly = assembly
        self._number = number

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the chunk, in its place."""
        place = self._assembly.take(self._number)
        if place is not None and place.flags.c_contiguous and type(self.function) is Program:
            chunk = self.function.run(args, place)
        else:
            chunk = self.function(*args, **kwargs)
        return self._assembly.put(self._number, chunk, place)

    def __reduce__(self) -> Any:
        return _same, (self.function,)

    def __repr__(self) -> str:
        return repr(self.function)


class Joined:
    """dask's `finalize`, for chunks that are in their places."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly

    def __call__(self, chunks: Any) -> Any:
        """Return the whole array."""
        found = self._assembly.joined(list(_flat(chunks)))
        return finalize(chunks) if found is None else found

    def __reduce__(self) -> Any:
        return _same, (finalize,)


def _same(function: Any) -> Any:
    return function


def _flat(chunks: Any) -> Iterator[Any]:
    if type(chunks) is list:
        for each in chunks:
            yield from _flat(each)
    else:
        yield chunks


def assembled(tasks: dict[Any, Any], table: Table) -> dict[Any, Any]:
    """Return a graph whose tasks write the chunks of whole results to their places.

    Parameters
    ----------
    tasks
        dask's nodes by key, rewritten.
    table
        As they were before.
    """
    found = dict(tasks)
    if cluster_threads():
        return tasks  # Workers have memory of their own.
    users = uses(tasks)
    users.update(table.wanted)
    for key in table.wanted:
        node = tasks.get(key)
        if type(node) is not Task or node.func is not finalize or not is_list(node.args[0]):
            continue
        keys = list(_keys(node.args[0]))
        chunks = table.sizes.chunks_of(keys)
        if chunks is None:
            continue
        assembly = Assembly(list(_places(chunks)))
        for number, chunk in enumerate(keys):
            task = _only_user(tasks, chunk, users)
            if task is not None:
                function = Assembled(task.func, assembly, number)
                found[task.key] = Task(task.key, function, *task.args, **task.kwargs,
                                       _data_producer=task.data_producer)
        found[key] = Task(key, Joined(assembly), *node.args)
    return found


def _only_user(tasks: Mapping[Any, Any], key: Any, users: Mapping[Any, int]) -> Task | None:
    """Return the task of a chunk that one node needs, also by another name; None if there is none.

    What is wanted is needed by whoever asks for it.
    """
    while users[key] == 1:
        node = tasks.get(key)
        if not isinstance(node, Alias):
            return node if type(node) is Task else None
        key = node.target
    return None


def _keys(value: Any) -> Iterator[Any]:
    if is_list(value):
        for each in value.args:
            yield from _keys(each)
    else:
        yield value.key if type(value) is TaskRef else None


def _places(chunks: Sequence[Sequence[int]]) -> Iterator[Place]:
    ends = [list(itertools.accumulate(lengths)) for lengths in chunks]
    pairs = [
        [slice(end - length, end) for end, length in zip(along, lengths, strict=True)]
        for along, lengths in zip(ends, chunks, strict=True)
    ]
    return itertools.product(*pairs)
