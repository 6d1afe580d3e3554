"""The bytes of tasks' chunks, as far as dask knew them when the graph was built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusched.adapters.tasks import DataNode, Task, execute_subgraph
from gpusched.graph.known import is_first_step
from gpusched.graph.subgraph import layer_of, result_key

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
        self._largest = {name: _nbytes(told) for name, told in self._told.items()}
        self.annotated = {name for name, layer in layers.items() if _annotations(layer)}
        """Layers whose tasks are to run in a way of their own, such as on certain workers."""
        self.largest = max((n for n in self._largest.values() if n is not None), default=0)
        """Bytes of the largest chunk whose size is known."""

    def add(self, name: str, itemsize: int, shape: tuple[int, ...]) -> None:
        """Note how large the chunks of a layer are at most, one that a pass has made."""
        told = self._told.get(name)
        longest = shape if told is None else tuple(map(max, told[1], shape))
        self._told[name] = itemsize, longest
        self._largest[name] = _nbytes(self._told[name])

    def of(self, node: Any) -> int | None:
        """Return the bytes of a task's result at most; None if that is not known.

        Parameters
        ----------
        node
            The task as dask has it, before it was rewritten.
        """
        if isinstance(node, DataNode):
            return _held(node.value)
        return self.of_key(result_key(node))

    def within(self, tasks: Mapping[Any, Any], key: Any) -> int | None:
        """Return the bytes of a chunk of a graph at most, be it a task's or kept elsewhere.

        Parameters
        ----------
        tasks
            dask's nodes by key, before they were rewritten.
        key
            The chunk's; without a node it is kept on a cluster.
        """
        node = tasks.get(key)
        return self.of_key(key) if node is None else self.of(node)

    def of_key(self, key: Any) -> int | None:
        """Return the bytes of a chunk at most, by its key; None if that is not known."""
        return self._largest.get(_layer(key))

    def lengths(self, tasks: Mapping[Any, Any], key: Any) -> tuple[int, tuple[int, ...]] | None:
        """Return the bytes of an element of a chunk, and how long the chunk is at most.

        Parameters
        ----------
        tasks, key
            As in `within`.
        """
        node = tasks.get(key)
        if isinstance(node, DataNode):
            known = isinstance(node.value, np.ndarray)
            return (node.value.itemsize, node.value.shape) if known else None
        return self._told.get(_layer(key if node is None else result_key(node)))

    def of_first_step(self, node: Any) -> int | None:
        """Return the bytes that a reduction leaves of a chunk at first; None if that is not known.

        Parameters
        ----------
        node
            A task for which `gpusched.graph.known.is_first_step` is true.

        Notes
        -----
        For such a task, dask has the size of the chunk that is reduced. What is left are a number
        or, of means and moments, counts, totals and powers from the second on; of variances, the
        mean in two parts as well.
        """
        told = self._told.get(layer_of(node.key))
        axes = node.kwargs["axis"]
        if told is None or not all(0 <= axis < len(told[1]) for axis in axes):
            return None
        itemsize, shape = told
        kept = math.prod(length for axis, length in enumerate(shape) if axis not in axes)
        order = {**getattr(node.func, "keywords", {}), **node.kwargs}.get("order", 2)
        arrays = 5 if order == 2 else order + 1
        return arrays * max(itemsize, 8) * kept

    def extra(self, node: Any) -> int | None:
        """Return the bytes that a task takes at most besides its inputs; None if not known.

        That is where its calls are made one by one, each reading what others of the task have
        left; what a call allocates for itself is not counted.

        Parameters
        ----------
        node
            The task as dask has it, before it was rewritten.
        """
        inside = _inside(node)
        made = self._made(inside[node.args[1]] if inside else node)
        return None if made is None else self.known_extra(node)

    def known_extra(self, node: Any) -> int:
        """Return the bytes of what `extra` counts, without the results whose size is not known.

        Parameters
        ----------
        node
            As in `extra`.
        """
        inside = _inside(node)
        if not inside:
            return self._made(node) or 0
        made = {key: self._made(task) or 0 for key, task in inside.items()}
        return max(
            made[key] + sum(made.get(each, 0) for each in task.dependencies)
            for key, task in inside.items()
        )

    def _made(self, node: Any) -> int | None:
        """Return the bytes of what a task returns at most; None if not known."""
        if isinstance(node, Task) and is_first_step(node):
            return self.of_first_step(node)
        return self.of(node)

    def is_annotated(self, node: Any) -> bool:
        """Return whether a task belongs to an annotated layer."""
        return bool(self.annotated) and layer_of(result_key(node)) in self.annotated


def _held(value: Any) -> int | None:
    """Return the bytes of an array, or of an index with arrays in it; None for anything else."""
    if type(value) is tuple:
        parts = [_held(item) for item in value]
        return None if None in parts else sum(filter(None, parts))
    if value is None or type(value) in (int, slice, type(Ellipsis)):
        return 0
    nbytes = getattr(value, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else None


def _inside(node: Any) -> dict[Any, Any]:
    """Return the tasks that dask has fused to one, by key; none of a task that it has not."""
    fused = isinstance(node, Task) and node.func is execute_subgraph
    return node.args[0] if fused else {}


def _layer(key: Any) -> Any:
    return key[0] if type(key) is tuple and key else layer_of(key)


def largest(layer: Any) -> int | None:
    """Return the bytes of a layer's largest chunk, or None if it is not known.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched.graph.sizes import largest
    >>> x = da.ones((10, 10), chunks=(5, 4))
    >>> largest(x.dask.layers[x.name])
    160
    """
    return _nbytes(_told(layer))


def _told(layer: Any) -> tuple[int, tuple[int, ...]] | None:
    """Return the bytes of an element of a layer's chunks, and the largest one's shape, if known."""
    told = getattr(layer, "collection_annotations", None)
    if not told or told.get("chunk_type") not in _PLAIN or "chunksize" not in told:
        return None
    dtype, shape = told["dtype"], told["chunksize"]
    if dtype is None or dtype.hasobject or any(n != n for n in shape):
        return None
    return dtype.itemsize, tuple(shape)


def _nbytes(told: tuple[int, tuple[int, ...]] | None) -> int | None:
    return None if told is None else told[0] * math.prod(told[1])


def _annotations(layer: Any) -> Any:
    return getattr(layer, "annotations", None)
