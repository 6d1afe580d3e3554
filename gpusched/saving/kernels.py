"""The kernels that a graph will be run with, found without running it.

Each kind of task is gone through once, with arrays of the right shapes and dtypes that hold zeros;
kernels are generated, and nothing is compiled or launched. Functions that are not known to be quick
and free of side effects are not called, so that what depends on them has no kernels to show.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
from dask._task_spec import (
    DataNode,
    GraphNode,
    NestedContainer,
    Task,
    _execute_subgraph,
    _identity_cast,
)

from gpusched.fusion import generate
from gpusched.fusion.cache import CompiledKernel
from gpusched.fusion.devices import HOST
from gpusched.fusion.kernel import Kernel
from gpusched.fusion.record import Recorder
from gpusched.graph.program import Program
from gpusched.graph.rewrite import Functions, rewrite_task
from gpusched.graph.segment import Segment, describe, obstacle
from gpusched.saving.names import name_of
from gpusched.saving.programs import encode_key
from gpusched.saving.rebuild import decode_key
from gpusched.saving.values import Encoder

_QUICK_NAMES = """
dask.array._shuffle._getitem dask.array._shuffle.concatenate_arrays dask.array.chunk.arange
dask.array.chunk.astype dask.array.chunk.getitem dask.array.chunk.linspace dask.array.chunk.sum
dask.array.chunk.trim dask.array.chunk.view dask.array.core._concatenate2
dask.array.core._enforce_dtype dask.array.core._pass_extra_kwargs
dask.array.core.concatenate_axes dask.array.core.concatenate_shaped
dask.array.core.concatenate3 dask.array.core.getter dask.array.core.getter_inline
dask.array.core.getter_nofancy dask.array.dispatch.concatenate_lookup
dask.array.chunk.argmax dask.array.chunk.argmin dask.array.reductions.arg_agg
dask.array.reductions.arg_chunk dask.array.reductions.arg_combine
dask.array.overlap._trim dask.array.random._apply_random dask.array.random._apply_random_func
dask.array.reductions.mean_agg dask.array.reductions.mean_combine
dask.array.reductions.moment_agg dask.array.reductions.moment_combine
dask.array.wrap._broadcast_trick_inner numpy.broadcast_to numpy.concatenate numpy.empty
numpy.empty_like numpy.expand_dims numpy.full numpy.full_like numpy.max numpy.min numpy.ones
numpy.ones_like numpy.reshape numpy.squeeze numpy.stack numpy.sum numpy.transpose numpy.zeros
numpy.zeros_like operator.getitem
"""
_QUICK = frozenset(_QUICK_NAMES.split())
"""Functions that take no longer than to write their result, by their names in files."""
_LARGEST = 1 << 30
"""Bytes of a chunk that is stood in for."""


class _Unknown(Exception):
    """Carries why nothing is known of a task's result."""


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


class _Search:
    def __init__(self, graph: dict[Any, GraphNode], encoder: Encoder) -> None:
        self.found = Found()
        self._graph = graph
        self._functions = Functions()
        self._encoder = encoder
        self._values: dict[Any, Any] = {}
        self._seen: dict[Any, Any] = {}
        device = replace(HOST, compile=self._generated, empty=np.zeros)
        self._device = device

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
                self._seen[kind] = self._result(rewrite_task(self._graph[key], self._functions))
            self._values[key] = self._seen[kind]
        except _Unknown:
            pass

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
            raise self._unknown(type(value).__name__, str(error)) from error

    def _value(self, key: Any) -> Any:
        if key not in self._values:
            raise _Unknown(str(key))
        return self._values[key]

    def _unknown(self, what: str, reason: str) -> _Unknown:
        self.found.unknown.setdefault(what, reason)
        return _Unknown(what)

    def _generated(self, kernel: Kernel) -> CompiledKernel:
        source = self.found.sources[kernel.name] = generate.source(kernel)
        return CompiledKernel(kernel, source, "", kernel.name, lambda *operands: None)

    def _result(self, node: GraphNode) -> Any:
        values = {key: self._value(key) for key in node.dependencies}
        if not isinstance(node, Task) or not isinstance(node.func, Program):
            self._check(node)
            return self._small(node(values))
        program = node.func
        inputs = [arg() if isinstance(arg, DataNode) else values[arg.key] for arg in node.args]
        registers = [*inputs, *[None] * len(program.steps)]
        for segment in program.segments:
            self._run(segment, registers)
        return self._small(registers[-1])

    def _small(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.nbytes > _LARGEST:
            raise self._unknown("chunks of more than 1 GiB", "too large to be stood in for")
        return value

    def _run(self, segment: Segment, registers: list[Any]) -> None:
        functions = [step.function for _, step in segment.steps]
        for function, (_, step) in zip(functions, segment.steps, strict=True):
            if not segment.recorded or not step.replayed:
                self._check_function(function)
        inputs = tuple(registers[k] for k in segment.inputs)
        name = getattr(functions[-1], "__name__", type(functions[-1]).__name__)
        try:
            with np.errstate(all="ignore"):
                if not segment.recorded or obstacle(inputs, segment._key(inputs)) is not None:
                    return segment._call(registers)
            recorder = Recorder(self._device)
            local, _ = segment._trace(recorder, inputs, registers)
            if segment._too_little(recorder) is None:
                segment._finish(recorder, local, registers)
            else:
                with np.errstate(all="ignore"):
                    segment._call(registers)
        except Exception as error:  # whatever a function makes of zeros
            raise self._unknown(name, f"{type(error).__name__}: {error}"[:200]) from error

    def _check(self, node: Any) -> None:
        """Refuse to run a task that calls anything but quick functions."""
        if not isinstance(node, Task):
            return
        if node.func is _execute_subgraph:
            for inner in node.args[0].values():
                self._check(inner)
            return
        if node.func is not _identity_cast and not isinstance(node, NestedContainer):
            self._check_function(node.func)
        for arg in node.args:
            self._check(arg)

    def _check_function(self, function: Any) -> None:
        for part in _parts(function):
            if name_of(part) not in _QUICK:
                name = str(getattr(part, "__name__", type(part).__name__))
                raise self._unknown(name, "is not run while saving")


def _parts(function: Any) -> Iterable[Any]:
    """Yield the functions that partial applications and compositions call in the end."""
    if hasattr(function, "funcs"):
        for part in (function.first, *function.funcs):
            yield from _parts(part)
    elif hasattr(function, "keywords") and hasattr(function, "func"):
        for part in (function.func, *filter(callable, function.args)):
            yield from _parts(part)
    else:
        yield function
