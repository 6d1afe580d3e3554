"""Expressions of arrays -> the graph of layers that dask.array would have made of the program."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.utils import ensure_dict, typename
from toolz import identity  # type: ignore[import-untyped]

from gpusched.adapters.tasks import Alias, GraphNode, NestedContainer, Task
from gpusched.graph.frontends.adapter import (
    ArrayBlockwiseDep,
    Expr,
    ExprSequence,
    FinalizeCompute,
    FrontEnd,
    blockwise,
    front_ends,
    normalised,
    unpack_collections,
)
from gpusched.graph.frontends.counterparts import Exchange, counterpart

PLAIN = ("numpy.ndarray", "cupy.ndarray")
"""Types of chunks that kernels take."""


def layered(expression: Expr) -> HighLevelGraph:
    """Return the graph of an optimised expression, with a layer for each of its expressions.

    What one task is for each block stays so: dask's optimisation of layers fuses them as it does
    those of dask.array.

    Parameters
    ----------
    expression
        Of arrays, or one that has some among what it depends on.
    """
    return _Layers(list(front_ends())).of(expression)


def exchanged(graph: Any, expression: Expr) -> dict[Any, Any]:
    """Return the tasks of an expression, with dask.array's functions for those that do the same.

    Parameters
    ----------
    graph
        What the expression has become.
    expression
        Of an array.
    """
    layers, tasks = _Layers(list(front_ends())), dict(ensure_dict(graph))
    if not all(map(layers.is_plain, expression.walk())):
        return tasks
    found: dict[Any, Any] = Exchange(counterpart).value(_with_keys(tasks))
    return found


def has_arrays(expression: Expr) -> bool:
    """Return whether an expression is of arrays, or depends on one that is."""
    kinds = tuple(end.array for end in front_ends())
    return bool(kinds) and any(isinstance(node, kinds) for node in expression.walk())


class _Layers:
    """Collects the layers of one graph; belongs to one thread."""

    def __init__(self, ends: list[FrontEnd]) -> None:
        self._ends = ends
        self._exchange = Exchange(None)
        self._layers: dict[str, Layer] = {}
        self._dependencies: dict[str, set[str]] = {}

    def of(self, expression: Expr) -> HighLevelGraph:
        nodes = [node for node in expression.walk() if not isinstance(node, ExprSequence)]
        if all(map(self.is_plain, nodes)):
            self._exchange = Exchange(counterpart)
        for node in nodes:
            self._add(node)
        known = self._layers.keys()
        return HighLevelGraph(
            self._layers,
            {name: (needed & known) - {name} for name, needed in self._dependencies.items()},
        )

    def is_plain(self, node: Any) -> bool:
        """Return whether the chunks of an expression are NumPy's or CuPy's, or it has none.

        dask-array has functions of its own for others, such as masked arrays.
        """
        if isinstance(node, FinalizeCompute) or self._end(node) is None:
            return True
        kinds = _kinds_of(node)
        return all(isinstance(m, np.generic) or typename(type(m)) in PLAIN for m in kinds)

    def _end(self, node: Any) -> FrontEnd | None:
        return next((end for end in self._ends if isinstance(node, end.array)), None)

    def _add(self, node: Any) -> None:
        end = self._end(node)
        if end is not None and end.is_fused(node) and not any(map(end.contracts, node.exprs)):
            root, *others = node.exprs
            for each in others:
                self._put(each._name, each, end)
            self._put(node._name, root, end)
        else:
            self._put(node._name, node, end)

    def _put(self, name: str, node: Any, end: FrontEnd | None) -> None:
        """Add the layer of an expression, whose chunks get keys of `name`."""
        if name in self._layers:
            return
        layer = None
        if end is not None and end.is_blockwise(node):
            layer = self._blockwise(name, node, end)
        needed = {each._name for each in node.dependencies()}
        if layer is None and name != node._name:
            self._put(node._name, node, end)
            layer, needed = _same_chunks(name, node), {node._name}
        elif layer is None:
            layer = MaterializedLayer(self._exchange.value(_with_keys(node._layer())))
        if end is not None:
            layer.collection_annotations = _described(node)
        self._layers[name] = layer
        self._dependencies[name] = needed

    def _blockwise(self, name: str, node: Any, end: FrontEnd) -> Layer | None:
        """Return a layer that dask can fuse; None if it is given collections, or other axes."""
        operands: list[Any] = []
        numblocks: dict[str, tuple[int, ...]] = {}
        for value, indices in zip(node.args[::2], node.args[1::2], strict=True):
            if indices is None:
                value, collections = unpack_collections(normalised(value))
                if collections:
                    return None
                value = self._exchange.value(value)
            elif getattr(value, "ndim", len(indices)) != len(indices):
                return None  # The expression's own layer says so best.
            elif end.is_number(value):
                value, indices = value.array[()], None
            elif not isinstance(value, ArrayBlockwiseDep):
                numblocks[value.name] = value.numblocks
                value = value.name
            operands += (value, indices)
        kwargs = {}
        for key, value in node.kwargs.items():
            kwargs[key], collections = unpack_collections(normalised(value))
            if collections:
                return None
        return blockwise(
            self._exchange.value(node.func), name, node.out_ind, *operands, numblocks=numblocks,
            new_axes=node.new_axes, concatenate=node.concatenate, **self._exchange.value(kwargs),
        )  # fmt: skip


def _with_keys(tasks: dict[Any, Any]) -> dict[Any, Any]:
    """Return tasks that know their keys, which those of some expressions do not."""
    return {key: _with_key(key, node) for key, node in tasks.items()}


def _with_key(key: Any, node: Any) -> Any:
    if not isinstance(node, GraphNode) or node.key == key:
        return node
    if isinstance(node, NestedContainer):
        # A list of chunks, which has no key of its own.
        return Task(key, identity, node)
    return node.substitute({}, key=key)


def _same_chunks(name: str, node: Any) -> Layer:
    """Return a layer in which an expression's chunks have other keys."""
    blocks = itertools.product(*map(range, node.numblocks))
    return MaterializedLayer({(name, *k): Alias((name, *k), (node._name, *k)) for k in blocks})


def _kinds_of(node: Any) -> tuple[Any, ...]:
    """Return empty arrays of the kinds of an expression's chunks; none where that is not known.

    Some have several results for each chunk, as decompositions of matrices do. Of what a user's
    function returns, dask-array asks the function itself, which may not take what it is given then:
    `coarsen` gives it no axes. Nothing is computed with the answer, so that dask-array's own tasks
    run without one.
    """
    try:
        with _unreported():
            meta = node._meta
    except Exception:  # noqa: BLE001  the user's own, where dask-array may not ask
        return ()
    return meta if type(meta) is tuple else (meta,)


def _described(node: Any) -> dict[str, Any] | None:
    """Return what dask.array notes of an array at its layer; None where that is not known."""
    if isinstance(node, FinalizeCompute) or all(kind is None for kind in _kinds_of(node)):
        return None
    with _unreported():
        return {
            "shape": node.shape,
            "dtype": node.dtype,
            # dask-array has axes without any chunk, of which `chunksize` is an error.
            "chunksize": tuple([max(lengths, default=0) for lengths in node.chunks]),
            "chunks": node.chunks,
            "chunk_type": typename(type(node._meta)),
        }


@contextmanager
def _unreported() -> Iterator[None]:
    """Ignore what NumPy warns of while the metadata of an expression is computed.

    dask-array does not ask for that of each expression; `RuntimeWarning` it ignores itself.
    No other is ignored here: threads that leave such a context out of turn keep its filters.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        yield
