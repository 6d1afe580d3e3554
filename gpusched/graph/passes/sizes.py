"""The bytes of tasks' chunks, as far as dask knew them when the graph was built.

`Sized` says of which that is sure: users' functions may return shorter chunks.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from dask.array import reductions

from gpusched.adapters.arrays import concatenate_arrays
from gpusched.adapters.tasks import (
    Alias,
    DataNode,
    GraphNode,
    Task,
    TaskRef,
    is_container,
)
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.functions.known import known
from gpusched.graph.functions.partials import bare, parts, shows_one_element
from gpusched.graph.functions.reductionsteps import is_first_step
from gpusched.graph.passes.fitting import Needed
from gpusched.graph.passes.joins import joined
from gpusched.graph.running.batch import calls_in
from gpusched.graph.subgraph import depth_first, evaluate, last_task, layer_of, result_key
from gpusched.plan.plan import last_uses
from gpusched.record.catalogue import has

_PLAIN = ("numpy.ndarray", "cupy.ndarray")


class Sizes:
    """The sizes of a graph's chunks, by layer.

    Parameters
    ----------
    layers
        Of the graph as it was built, by name.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, layers: Mapping[str, Any]) -> None:
        self._told = {name: _told(layer) for name, layer in layers.items()}
        told = (n for n, each in self._told.items() if each)
        self._undetermined = {name for name, layer in layers.items() if _is_undetermined(layer)}
        self._chunks = {n: layers[n].collection_annotations.get("chunks") for n in told}
        self._grids: dict[tuple[Any, ...], tuple[int, Any]] = {}
        """By the keys of all chunks: what `grid` returns, of arrays that passes have made."""
        self._left: dict[Any, int | None] = {}
        """What first steps of a layer leave of a chunk, by their names, axes and functions."""
        self.annotated = {n for n, layer in layers.items() if getattr(layer, "annotations", None)}
        """Layers whose tasks are to run in a way of their own, such as on certain workers."""
        self.largest = max(filter(None, map(_nbytes, self._told.values())), default=0)
        """Bytes of the largest chunk whose size is known."""

    def add(self, name: str, itemsize: int, shape: tuple[int, ...]) -> None:
        """Note how large the chunks of a layer are at most, one that a pass has made."""
        told = self._told.get(name)
        longest = shape if told is None else tuple(map(max, told[1], shape))
        self._told[name] = itemsize, longest
        self._chunks.pop(name, None)
        self._left.clear()

    def add_grid(self, keys: Sequence[Any], itemsize: int, chunks: Any) -> None:
        """Note what `grid` returns of the chunks of an array, which a pass has made."""
        self._grids[tuple(keys)] = itemsize, chunks

    def of(self, node: Any) -> int | None:
        """Return the bytes of a task's result at most, by its node; None if that is not known."""
        if isinstance(node, DataNode):
            return _held(node.value)
        return self.of_task(node, leaves_less(node))

    def of_task(self, node: Any, less: bool) -> int | None:
        """Return the bytes of a task's result at most, by what `leaves_less` returns of it."""
        left = self.of_first_step(last_task(node)) if less else None
        return self.of_key(result_key(node)) if left is None else left

    def of_result(self, tasks: Mapping[Any, Any], key: Any) -> int | None:
        """Return the bytes of what a task, or a cluster, has under a key; None if not known.

        Parameters
        ----------
        tasks
            dask's nodes by key, before they were rewritten.
        key
            The chunk's; without a node it is kept on a cluster.
        """
        node = tasks.get(key)
        if isinstance(node, Alias):
            return self.of_result(tasks, node.target)
        if isinstance(node, DataNode):
            return _held(node.value)
        last = last_task(node)
        if last is None or is_container(last):
            return self._of_own(key)
        return self._made(tasks, last)

    def _of_own(self, key: Any) -> int | None:
        """Return the bytes of a chunk; those of its layer's largest where only that is known."""
        name = _layer(key)
        told, chunks = self._told.get(name), self._chunks.get(name)
        if told and chunks and type(key) is tuple and len(key) == len(chunks) + 1:
            own = (lengths[number] for lengths, number in zip(chunks, key[1:], strict=True))
            return told[0] * math.prod(own)
        return self.of_key(key)

    def of_key(self, key: Any) -> int | None:
        """Return the bytes of a chunk at most, by its key; None if that is not known."""
        return _nbytes(self._told.get(_layer(key)))

    def grid(self, keys: Sequence[Any]) -> tuple[int, tuple[tuple[int, ...], ...]] | None:
        """Return the bytes of an element of an array, and how long its chunks are along each axis.

        Parameters
        ----------
        keys
            Of all its chunks, those along the last axis next to each other.

        Returns
        -------
        tuple or None
            None if that is not known, or these are not the chunks of one array.
        """
        made = self._grids.get(tuple(keys))
        if made is not None:
            return made
        name = _layer(keys[0])
        told, chunks = self._told.get(name), self._chunks.get(name)
        if not told or not chunks or any(n != n for lengths in chunks for n in lengths):
            return None
        if len(keys) != math.prod(map(len, chunks)):
            return None
        blocks = itertools.product(*(range(len(lengths)) for lengths in chunks))
        return (told[0], chunks) if list(keys) == [(name, *block) for block in blocks] else None

    def lengths(self, tasks: Mapping[Any, Any], key: Any) -> tuple[int, tuple[int, ...]] | None:
        """Return the bytes of an element of a chunk, and how long the chunk is at most.

        None if that is not known, or elements are Python's objects.

        Parameters
        ----------
        tasks, key
            As in `of_result`.
        """
        node = tasks.get(key)
        if isinstance(node, DataNode):
            # Of dataframes, any attribute may be a column.
            dtype = getattr(node.value, "dtype", None)
            if isinstance(dtype, np.dtype) and hasattr(node.value, "shape"):
                return None if dtype.hasobject else (dtype.itemsize, node.value.shape)
            return None
        return self._told.get(_layer(key if node is None else result_key(node)))

    def of_first_step(self, node: Any) -> int | None:
        """Return the bytes that a reduction leaves of a chunk at first; None if that is not known.

        Parameters
        ----------
        node
            A task for which `gpusched.graph.functions.reductionsteps.is_first_step` is true.

        Notes
        -----
        For such a task, dask has the size of the chunk that is reduced. What is left are a number
        or, of means and moments, counts, totals and powers from the second on; of variances, the
        mean in two parts as well.
        """
        alike = _layer(node.key), node.kwargs["axis"], id(node.func)
        if alike not in self._left:
            self._left[alike] = self._left_of(node)
        return self._left[alike]

    def _left_of(self, node: Any) -> int | None:
        told = self._told.get(layer_of(node.key))
        axes = node.kwargs["axis"]
        if told is None or not all(0 <= axis < len(told[1]) for axis in axes):
            return None
        itemsize, shape = told
        kept = math.prod(length for axis, length in enumerate(shape) if axis not in axes)
        step = bare(node.func)
        arrays = 2 if step is reductions.mean_chunk else 1
        if step is reductions.moment_chunk:
            order = {**getattr(node.func, "keywords", {}), **node.kwargs}.get("order", 2)
            arrays = 5 if order == 2 else order + 1
        return arrays * max(itemsize, 8) * kept

    def taken(self, tasks: Mapping[Any, Any], node: Any) -> Needed:
        """Return what a task takes besides its inputs, which are left out.

        Parameters
        ----------
        tasks
            dask's nodes by key, before they were rewritten.
        node
            The task.
        """
        calls = _calls(node)
        sizes = [self._made(tasks, call) for call, _ in calls]
        dying = last_uses([reads for _, reads in calls], {len(calls) - 1})
        return Needed(_most([size or 0 for size in sizes], dying), None not in sizes)

    def _made(self, tasks: Mapping[Any, Any], node: Task) -> int | None:
        """Return the bytes of what a call returns at most; None if not known."""
        if shows_one_element(node.func):
            return 0
        if joined(node):
            # A copy, or what joins the parts.
            chunks = [self.of_result(tasks, key) for key in node.dependencies]
            return None if None in chunks else sum(filter(None, chunks))
        return self.of(node)

    def unknown(self, what: str, nodes: Iterable[Any]) -> Reason:
        """Return the reason for tasks' results whose sizes are not known, by their nodes or keys.

        Where dask array has counted them as unknown, users can have them computed.
        """
        names = {_layer(result_key(n) if isinstance(n, GraphNode) else n) for n in nodes}
        if names.isdisjoint(self._undetermined):
            return GraphBreak.NO_SIZE(
                f"{what} whose size is not noted: several in one, or not numbers"
            )
        return GraphBreak.UNKNOWN_SIZE(f"{what} of unknown size")

    def is_annotated(self, node: Any) -> bool:
        """Return whether a task belongs to an annotated layer."""
        return bool(self.annotated) and layer_of(result_key(node)) in self.annotated


def leaves_less(node: Any) -> bool:
    """Return whether a task's result is less than its layer's chunks, as dask has noted these.

    That is asked of the functions that it calls.
    """
    last = last_task(node)
    return last is not None and is_first_step(last)


def _held(value: Any) -> int | None:
    """Return the bytes of an array, or of an index with arrays in it; None for anything else."""
    if type(value) is tuple:
        parts = [_held(item) for item in value]
        return None if None in parts else sum(filter(None, parts))
    if value is None or type(value) in (int, slice, type(Ellipsis)):
        return 0
    nbytes = getattr(value, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else None


def _calls(task: Task) -> list[tuple[Task, set[int]]]:
    """Return the calls that a task makes, in their order, each with those whose results it reads.

    dask may have fused several tasks to one.
    """
    found: list[tuple[Task, set[int]]] = []

    def note(call: Task, args: list[Any], kwargs: dict[str, Any], key: Any) -> TaskRef:
        found.append((call, {each for value in (*args, *kwargs.values()) for each in _refs(value)}))
        return TaskRef(len(found) - 1)

    evaluate(task, dict.fromkeys(task.dependencies), note)
    return found


def _refs(value: Any) -> Iterator[Any]:
    """Yield what references in an argument refer to."""
    if isinstance(value, TaskRef):
        yield value.key
    elif type(value) in (list, tuple, set):
        yield from chain.from_iterable(map(_refs, value))
    elif type(value) is dict:
        yield from _refs(list(value.values()))


def _most(made: list[int], dying: Sequence[tuple[int, ...]]) -> int:
    """Return the most bytes that results of calls take at once, each gone after its last use."""
    alive = most = 0
    for size, gone in zip(made, dying, strict=True):
        alive += size
        most = max(most, alive)
        alive -= sum(made[number] for number in gone)
    return most


def _layer(key: Any) -> Any:
    return key[0] if type(key) is tuple and key else layer_of(key)


def _told(layer: Any) -> tuple[int, tuple[int, ...]] | None:
    """Return the bytes of an element of a layer's chunks, and the largest one's shape, if known."""
    told = getattr(layer, "collection_annotations", None)
    if not told or told.get("chunk_type") not in _PLAIN or "chunksize" not in told:
        return None
    dtype, shape = told["dtype"], told["chunksize"]
    if dtype is None or dtype.hasobject or any(n != n for n in shape):
        return None
    return dtype.itemsize, tuple(shape)


def _is_undetermined(layer: Any) -> bool:
    """Return whether chunks of a layer are of a size that their values decide, as after a mask."""
    told = getattr(layer, "collection_annotations", None) or {}
    return any(n != n for n in told.get("chunksize", ()))


def _nbytes(told: tuple[int, tuple[int, ...]] | None) -> int | None:
    return None if told is None else told[0] * math.prod(told[1])


class Sized:
    """Which of a graph's chunks are as long as dask has noted.

    Parameters
    ----------
    tasks
        The graph's nodes by key.
    """

    kept = True
    """Whether those are that a cluster keeps, and the graph has no nodes for."""

    def __init__(self, tasks: Mapping[Any, Any]) -> None:
        self._tasks = tasks
        self._found: dict[Any, bool] = {}

    def __call__(self, chunks: Collection[Any]) -> bool:
        """Return whether some chunks are.

        Those of users' functions, and what is made of them, are not known to be.
        """
        found, tasks, kept = self._found, self._tasks, self.kept
        new = [key for key in chunks if key in tasks and key not in found]
        for key in depth_first(
            new, lambda k: [o for o in tasks[k].dependencies if o in tasks and o not in found]
        ):
            before = all(found.get(other, kept) for other in tasks[key].dependencies)
            found[key] = before and self.keeps(tasks[key])
        return all(found.get(key, kept) for key in chunks)

    def keeps(self, node: Any) -> bool:
        """Return whether a task's result is if its inputs are."""
        return _keeps_size(node)


class Plain(Sized):
    """Which of a graph's chunks are surely arrays of NumPy's, or what its functions make of these.

    dask has noted that for what users' functions return as well, as it supposes or they say.
    """

    kept = False

    def keeps(self, node: Any) -> bool:
        """Return whether a task's result is if its inputs are."""
        if type(node) is DataNode:
            return type(node.value) in _PLAIN_DATA
        return super().keeps(node)


_PLAIN_DATA = np.ndarray, tuple, int, slice, bool, float, type(None)
"""Types of arrays, and of what takes elements of them or makes them."""


def _keeps_size(node: Any) -> bool:
    """Return whether a task's result is as large as dask has noted if its inputs are."""
    return all(all(map(_is_known, parts(f))) or _is_of_groups(f) for f, *_ in calls_in(node))


def _is_known(function: Any) -> bool:
    traits = has(function, "lean") or has(function, "draws")
    return known(function) or traits or function is concatenate_arrays


def _is_of_groups(function: Any) -> bool:
    if "flox.dask" not in sys.modules:
        return False
    from gpusched.graph.functions.grouped import keeps_groups

    return keeps_groups(function)
