"""Counts what one task of each kind allocates: NumPy's arrays, and buffers of gpusched's own."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import dask
import numpy as np
from dask._task_spec import DataNode, Task

from gpusched.backends import devices
from gpusched.backends.buffer_pool import pool
from gpusched.emit.kernel import Kernel
from gpusched.graph.optimisation import regrouped
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.rewrite import rewrite
from gpusched.inspection.gather import gather
from gpusched.inspection.standins import arrays_in
from gpusched.inspection.task_memory import held
from gpusched.inspection.variant import Variant
from gpusched.inspection.walk import Walk, _operands_first
from gpusched.store.handles import CompiledKernel, Handle


@dataclass(frozen=True)
class Allocated:
    """Of one kind of task."""

    predicted: Variant
    fused: int
    """Bytes at most, inputs included, with gpusched."""
    plain: int
    """The same of the task as dask alone runs it."""


def allocated(program: Any) -> list[Allocated]:
    """Run a program task by task, with gpusched and without; return what its kinds of tasks need.

    What the pool keeps for later tasks is not the task's: it keeps nothing here, so that buffers
    are NumPy's own arrays, which `tracemalloc` counts.
    """
    wanted = gather(program)
    found = regrouped(Table(wanted.tasks, wanted.keys, Sizes(wanted.built.layers)))
    wanted = replace(wanted, tasks=found.tasks, items=found.items)
    variants = {variant.key: variant for variant in Walk(wanted).run().variants}
    with dask.config.set({"gpusched.memory.pool-limit": 0}), np.errstate(all="ignore"):
        pool.clear()
        fused = _peaks(rewrite(found.tasks, Functions()), variants)
        plain = _peaks(found.tasks, variants)
    return [Allocated(variants[key], fused[key], plain[key]) for key in variants]


@contextmanager
def kernels_that_do_nothing() -> Iterator[None]:
    """Leave the results of kernels as they were allocated, so that nothing is compiled."""

    def compiled(kernel: Kernel) -> Handle:
        return Handle.of(CompiledKernel(kernel, lambda *operands: None))

    with patch.object(devices, "HOST", replace(devices.HOST, compile=compiled)):
        yield


def _peaks(tasks: dict[Any, Any], measured: Mapping[Any, Any]) -> dict[Any, int]:
    """Return the bytes at most of some tasks, by key, while all of a graph run one by one."""
    found, values = {}, {}
    for key, node in _operands_first(tasks):
        given = {each: values[each] for each in node.dependencies}
        if key in measured and isinstance(node, Task):
            # Not for the first time: what is recorded then is there for all others.
            values[key] = node(given)
            most = min(_traced(node, given) for _ in range(2))
            found[key] = most + held(arrays_in([*given.values(), *_inside(node)]))
        else:
            values[key] = node(given)
    return found


def _traced(node: Task, given: dict[Any, Any]) -> int:
    tracemalloc.start()
    try:
        node(given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _inside(node: Any) -> list[Any]:
    """Return the arrays that a task has among its arguments, rather than from other tasks."""
    if isinstance(node, DataNode):
        return [node.value]
    if isinstance(node, Task):
        return [array for item in node.args for array in _inside(item)]
    if isinstance(node, dict):
        return [array for item in node.values() for array in _inside(item)]
    if isinstance(node, list | tuple):
        return [array for item in node for array in _inside(item)]
    return []
