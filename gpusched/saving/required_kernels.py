"""The kernels that a graph will be run with, found without running it.

Each kind of task is gone through once, with arrays of the right shapes and dtypes that hold zeros;
kernels are generated, and nothing is compiled or launched. Functions that are not known to be quick
and free of side effects are not called, so that what depends on them has no kernels to show.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

import numpy as np

from gpusched.adapters.tasks import GraphNode
from gpusched.emit import hostloops
from gpusched.emit.kernel import Kernel
from gpusched.graph.rehearsal import Rehearsal, UnknownResultError
from gpusched.graph.rewrite import Functions, rewrite_task
from gpusched.graph.segment import describe
from gpusched.saving.rebuild import decode_key
from gpusched.saving.saved_programs import encode_key
from gpusched.saving.values import Encoder
from gpusched.store.handles import CompiledKernel


class _MissingError(Exception):
    """An input is not known, which has been said."""


@dataclass
class Found:
    """What came of going through a graph."""

    sources: dict[str, str] = field(default_factory=dict)
    """Text of each kernel, by name."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Why tasks were not gone through, by the name of what stopped it."""


def find(
    graph: dict[Any, Any], content: dict[str, Any], given: Iterable[Any], encoder: Encoder
) -> Found:
    """Return the kernels of a graph.

    Parameters
    ----------
    graph
        Keys and dask's nodes.
    content
        The same as ``programs`` and ``tasks``, of which equal tasks have the same.
    given
        dask arrays that the graph depends on, whose own graphs are not looked at.
    encoder
        Has the arrays that are part of the tasks.
    """
    search = _Search(graph, encoder)
    for array in given:
        search.stand_in(array)
    tasks = {json.dumps(key): (number, inputs) for key, number, inputs in content["tasks"]}
    order = TopologicalSorter(
        {key: node.dependencies & graph.keys() for key, node in graph.items()}
    )
    for key in order.static_order():
        search.visit(key, *tasks[json.dumps(encode_key(key))])
    return search.found


class _Search(Rehearsal):
    refusal = "is not run while saving"

    def __init__(self, graph: dict[Any, GraphNode], encoder: Encoder) -> None:
        super().__init__()
        self.found = Found()
        self._graph = graph
        self._functions = Functions()
        self._encoder = encoder
        self._values: dict[Any, Any] = {}
        self._seen: dict[Any, Any] = {}

    def compiled(self, kernel: Kernel) -> CompiledKernel:
        """Note a kernel's source."""
        self.found.sources[kernel.name] = hostloops.source(kernel)
        return super().compiled(kernel)

    def stand_in(self, array: Any) -> None:
        """Note arrays of zeros for the chunks of an input."""
        for block in itertools.product(*(range(len(sizes)) for sizes in array.chunks)):
            shape = tuple(sizes[k] for sizes, k in zip(array.chunks, block, strict=True))
            kind = ("zeros", shape, array.dtype)
            if kind not in self._seen:
                self._seen[kind] = np.zeros(shape, array.dtype)
            self._values[array.name, *block] = self._seen[kind]

    def visit(self, key: Any, number: int, inputs: list[Any]) -> None:
        """Note what stands in for the result of a task, the same one for equal tasks."""
        try:
            kind = (number, *map(self._kind, inputs))
            if kind not in self._seen:
                node = rewrite_task(self._graph[key], self._functions)
                values = {each: self._value(each) for each in node.dependencies}
                self._seen[kind] = self.result(node, values)
            self._values[key] = self._seen[kind]
        except _MissingError:
            pass
        except UnknownResultError as unknown:
            self.found.unknown.setdefault(unknown.what, unknown.reason)

    def _kind(self, encoded: Any) -> Any:
        match encoded:
            case {"key": key}:
                return self._described(self._value(decode_key(key)))
            case {"array": number}:
                return self._described(self._encoder.arrays[number])
        return json.dumps(encoded)

    def _described(self, value: Any) -> Any:
        try:
            return describe(value)
        except TypeError as error:
            # Such as the dictionaries that mean_chunk returns.
            if isinstance(value, dict):
                return tuple((name, self._described(item)) for name, item in value.items())
            raise UnknownResultError(type(value).__name__, str(error)) from error

    def _value(self, key: Any) -> Any:
        if key not in self._values:
            raise _MissingError(str(key))
        return self._values[key]
