"""A scheduler that does with a graph what a worker that owns a GPU does, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import dask.base
import numpy as np
from dask._task_spec import DataNode, GraphNode, convert_legacy_graph
from dask.order import order
from dask.typing import Key

import gpusched.serialization
from gpusched import placed
from gpusched.backends.devices import cuda
from gpusched.graph.passes import assembling
from gpusched.graph.placement.devicechoice import Work
from gpusched.placed import Placed, hosted
from gpusched.workers.task_inputs import CountingMover, TaskInputs
from tests.record.recording import Place


class Results(dict[Key, Any]):
    """The results that the worker holds; a copy on the device takes the place of an array."""

    def replace(self, key: Key, value: np.ndarray, other: Placed) -> None:
        """Do what the method of the worker's store does."""
        if self.get(key) is value:
            self[key] = other


class GpuWorker:
    """Computes graphs on one thread; each task's inputs and results cross the worker's border.

    Parameters
    ----------
    device
        The GPU.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.mover = CountingMover(device.copies())

    def get(self, dsk: Any, keys: Any, **_: Any) -> Any:
        """Return the results of a graph, as a client of the worker gets them."""
        results = self.compute(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        return hosted(_values(keys, results))

    def place(self) -> Place:
        """Return where its chunks are, for recordings."""

        def to_host(found: Any) -> Any:
            if type(found) in (tuple, list):
                return type(found)(map(to_host, found))
            if type(found) is dict:
                return {key: to_host(value) for key, value in found.items()}
            if type(found) is not np.ndarray and hasattr(found, "get"):
                found = self.mover.to_host(found)
            # CuPy has no scalars.
            return found[()] if isinstance(found, np.ndarray) else found

        return Place(cuda(), self.mover.to_device, to_host)

    def compute(self, dsk: Mapping[Key, Any]) -> Results:
        """Return the results of all tasks of a graph, as the worker keeps them."""
        graph: dict[Key, GraphNode] = convert_legacy_graph(dsk)
        results = Results()
        border = TaskInputs(results, self.mover)  # type: ignore[arg-type]
        placed.install(self.mover)
        try:
            # As dask's own scheduler takes them: tasks that fail or change chunks show their order.
            for key in sorted(graph, key=order(graph).__getitem__):
                node = graph[key]
                inputs = {each: results[each] for each in node.dependencies}
                with self.device.stream():
                    results[key] = (
                        node.value if isinstance(node, DataNode) else border(node, inputs)
                    )
                    self.device.synchronize()
        finally:
            placed.install(None)
        return results


def _values(keys: Any, results: Results) -> Any:
    return [_values(each, results) for each in keys] if type(keys) is list else results[keys]


@contextmanager
def gpu_worker() -> Iterator[GpuWorker]:
    """Give such a worker, with all readers and writers of its results registered."""
    from gpusched.workers.device.cuda import CudaDevice

    gpusched.serialization.register()
    # Its clients make graphs for a worker, which gets no functions that are this process's own.
    with patch.object(assembling, "has_scheduler", return_value=True):
        yield GpuWorker(CudaDevice(""))


def always() -> Any:
    """Have the device taken, whatever copies cost."""
    return patch.object(Work, "pays", lambda self: True)


@contextmanager
def everywhere() -> Iterator[GpuWorker]:
    """Have dask compute all graphs by such a worker, on the device whatever copies cost."""
    names = ("sync", "synchronous", "single-threaded", "threads", "threading")
    with (
        gpu_worker() as worker,
        always(),
        dask.config.set(scheduler="sync"),
        patch.dict(dask.base.named_schedulers, dict.fromkeys(names, worker.get)),
    ):
        yield worker
