"""Chunks of a whole result -> written to their places in it by the tasks that compute them.

dask keeps all chunks until the last one is there, and then copies them into the whole array, in one
thread. Where tasks share the process's memory, that which computes a chunk can put it there: its
kernel writes it there if its place is contiguous; else it copies it, beside the other threads. No
more memory is taken than for the result and for a few chunks, instead of for both.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dask.array.core import finalize, slices_from_chunks
from dask.callbacks import Callback
from dask.core import flatten

from gpusched import forks
from gpusched.adapters.tasks import Alias, Task, is_list
from gpusched.backends.devices import copy_into
from gpusched.graph.passes.table import Table, uses
from gpusched.graph.programs.program import Program
from gpusched.graph.subgraph import key_of_argument, leaves
from gpusched.roles import has_scheduler

LEAST = 1 << 18
"""Bytes of the chunks of a result, on average, from which on they are put there by their tasks:
those from which on a chunk's own buffer would be one of the pool."""

PLAIN = frozenset("biufcmM")
"""Kinds of dtypes whose elements are nothing but their bytes."""

Place = tuple[slice, ...]


class Assembly:
    """The whole array of one result.

    Parameters
    ----------
    places
        Of its chunks in it, those along the last axis next to each other.

    Notes
    -----
    Thread-safe. A graph may be run again, and by several threads at once, after errors, too. So

    - a place is given away once: a task that comes second keeps its chunk to itself;
    - a run gets the array if all places of it that have been given away hold this run's chunks.
      Then no other run has any part of it, nor gets any: the next place is one of a new array;
    - in any other case dask joins the chunks, and nobody gets the array.

    Only its chunks keep the array: of a run that has failed, nothing is left.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._lock = forks.lock()
        self._start()

    def _start(self, array: np.ndarray | None = None) -> None:
        self._kept = None if array is None else weakref.ref(array)
        self._given: set[int] = set()

    @property
    def _array(self) -> np.ndarray | None:
        return None if self._kept is None else self._kept()

    def take(self, number: int, dtype: np.dtype | None = None) -> np.ndarray | None:
        """Return the place of a chunk, if nobody has it yet.

        Parameters
        ----------
        number
            Of the chunk.
        dtype
            Its own, which the array gets if it is the first one; None before it is known.
        """
        with self._lock:
            array = self._array
            if array is None and dtype is not None:
                try:
                    array = np.empty([each.stop for each in self._places[-1]], dtype)
                except (MemoryError, ValueError):
                    return None  # dask says so when it joins the chunks, if it does not fit then.
                self._start(array)
            if array is None or number in self._given or dtype not in (None, array.dtype):
                return None
            self._given.add(number)
            return array[self._places[number]]

    def put(self, number: int, chunk: Any, place: np.ndarray | None) -> Any:
        """Return a chunk in its place, or as it is where it cannot be put there.

        Parameters
        ----------
        number
            Of the chunk.
        chunk
            What has been computed.
        place
            What `take` has given, before.
        """
        if chunk is not place:
            # dask may have announced another type, dtype or shape than the chunk has.
            if type(chunk) is not np.ndarray or not _is_plain(chunk.dtype):
                return chunk
            if place is None:
                place = self.take(number, chunk.dtype)
            if place is None or (place.shape, place.dtype) != (chunk.shape, chunk.dtype):
                return chunk
            copy_into(place, chunk)
        return place

    def joined(self, chunks: Sequence[Any]) -> np.ndarray | None:
        """Return the array, with chunks in it that are not in their places yet; None if dask must.

        Parameters
        ----------
        chunks
            All of them.
        """
        with self._lock:
            array, given = self._array, self._given
            self._start()
        if array is None or any(type(chunk) is not np.ndarray for chunk in chunks):
            return None
        inside = {number for number, chunk in enumerate(chunks) if chunk.base is array}
        if inside != given:
            return None
        for number, (chunk, place) in enumerate(zip(chunks, self._places, strict=True)):
            if number not in inside:
                there = array[place]
                same = chunk.dtype == array.dtype and _is_plain(chunk.dtype)
                if not same or chunk.shape != there.shape:
                    return None
                copy_into(there, chunk)
        return array


def _is_plain(dtype: np.dtype) -> bool:
    return dtype.kind in PLAIN and dtype.metadata is None


class Assembled:
    """A task's function, whose result is put in its place.

    Notes
    -----
    Where it is sent to, there is only the function.
    """

    def __init__(self, function: Callable[..., Any], assembly: Assembly, number: int) -> None:
        self._function = function
        self._assembly = assembly
        self._number = number

    @property
    def __name__(self) -> str:
        return str(getattr(self._function, "__name__", self._function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the chunk."""
        place = self._assembly.take(self._number)
        if place is not None and place.flags.c_contiguous and type(self._function) is Program:
            chunk = self._function(*args, into=place, **kwargs)
        else:
            chunk = self._function(*args, **kwargs)
        return self._assembly.put(self._number, chunk, place)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> Any:
        return _itself, (self._function,)


class Joined:
    """dask's `finalize`, of chunks that are in their places.

    Notes
    -----
    Where it is sent to, it is dask's.
    """

    __name__ = finalize.__name__

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly

    def __call__(self, chunks: list[Any]) -> Any:
        """Return the whole array."""
        found = self._assembly.joined(list(flatten(chunks)))
        return finalize(chunks) if found is None else found

    def __reduce__(self) -> Any:
        return _itself, (finalize,)


def _itself(function: Any) -> Any:
    return function


def assembled(tasks: dict[Any, Any], table: Table) -> dict[Any, Any]:
    """Return a graph whose tasks put the chunks of whole results in their places.

    A chunk that is needed for something else stays an array of its own, as it could be seen to
    change with the result. So are all if a callback gets results, as that of dask's cache does,
    where other graphs are part of what is computed, as they may need the same chunks, and where a
    scheduler runs: its workers run their tasks elsewhere, or again after they were needed last.

    Parameters
    ----------
    tasks
        dask's nodes by key, rewritten.
    table
        As they were before.
    """
    whole = [key for key in table.wanted if _joins(tasks.get(key))]
    seen = any(posttask for _, _, _, posttask, _ in list(Callback.active))
    if not whole or seen or has_scheduler():
        return tasks
    users = uses(tasks)
    users.update(table.wanted)
    found = dict(tasks)
    for key in whole:
        (nested,) = tasks[key].args
        keys = [key_of_argument(each) for _, each in leaves(nested)]
        grid = table.sizes.grid(keys) if len(keys) > 1 and None not in keys else None
        if grid is None or _nbytes(*grid) < LEAST * len(keys):
            continue
        assembly = Assembly(slices_from_chunks(grid[1]))
        for number, chunk in enumerate(keys):
            task = _only_user(tasks, chunk, users)
            if task is not None:
                found[task.key] = _calling(task, Assembled(task.func, assembly, number))
        found[key] = _calling(tasks[key], Joined(assembly))
    return found


def _joins(node: Any) -> bool:
    joins = type(node) is Task and node.func is finalize
    return joins and len(node.args) == 1 and is_list(node.args[0])


def _calling(task: Task, function: Callable[..., Any]) -> Task:
    """Return a task that calls another function."""
    return Task(task.key, function, *task.args, _data_producer=task.data_producer, **task.kwargs)


def _only_user(tasks: Mapping[Any, Any], key: Any, users: Mapping[Any, int]) -> Task | None:
    """Return the task that makes a chunk, if one node needs it, by whatever name; else None."""
    while users[key] == 1:
        node = tasks.get(key)
        if not isinstance(node, Alias):
            return node if type(node) is Task else None
        key = node.target
    return None


def _nbytes(itemsize: int, chunks: Sequence[Sequence[int]]) -> int:
    return itemsize * math.prod(map(sum, chunks))
