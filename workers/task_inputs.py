"""Where chunks that are in device memory meet tasks: which get them, and which NumPy's arrays."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from dask.typing import Key
from distributed import Client

from gpusched import placed
from gpusched.adapters.distributed import replace_own_gathering
from gpusched.adapters.tasks import Alias, Task, execute_subgraph
from gpusched.placed import TAKES_PLACED, Placed, extent, holds_placed, hosted
from gpusched.plan.overrides import OFF, active
from gpusched.store.statistics import updating
from gpusched.workers.device.base import Copies, Device
from gpusched.workers.memory.store import Store


class CountingMover:
    """Copies chunks, counts the bytes, and notes which of a task's inputs it has copied.

    Notes
    -----
    Thread-safe; each thread has the inputs of its own task.
    """

    def __init__(self, device: Copies) -> None:
        self._device = device
        self._tasks = threading.local()

    def to_device(self, array: np.ndarray, wait: bool = True) -> Any:
        """Return a copy in device memory; axes along which an array repeats itself stay so."""
        found = self._device.to_device(array, wait)
        with updating() as counters:
            counters.bytes_to_device += extent(array)
        return found

    def to_host(self, array: Any) -> np.ndarray:
        """Return a copy in host memory."""
        found = self._device.to_host(array)
        with updating() as counters:
            counters.bytes_to_host += extent(array)
        return found

    def uploaded(self, array: np.ndarray, copy: Placed) -> None:
        """Note a copy of one of the task's inputs, for the worker to keep in its place."""
        copies: list[tuple[np.ndarray, Placed]] | None = getattr(self._tasks, "copies", None)
        if copies is not None:
            copies.append((array, copy))

    def run(self, task: Callable[[Any], Any], values: dict[Key, Any],
            keep: Callable[[Key, np.ndarray, Placed], None]) -> Any:  # fmt: skip
        """Return what a task returns, and have the copies that it makes of its inputs kept.

        Parameters
        ----------
        task
            What takes chunks in device memory.
        values
            Its inputs by key.
        keep
            Called with the key of each input that was copied, the array, and its copy.
        """
        copies = self._tasks.copies = []
        try:
            with placed.lent(self):
                return task(values)
        finally:
            self._tasks.copies = None
            if copies:
                self._device.wait()  # Other threads may take them from now on.
            for array, copy in copies:
                for key, value in values.items():
                    if value is array:
                        keep(key, array, copy)


class TaskInputs:
    """Gives tasks their inputs, on a worker whose GPU computes chunks of NumPy programs."""

    def __init__(self, store: Store, mover: CountingMover) -> None:
        self._store = store
        self._mover = mover

    def __call__(self, spec: Any, values: dict[Key, Any]) -> Any:
        """Return what a task returns."""
        if _takes_placed(spec):
            return self._mover.run(spec, values, self._store.replace)
        if not any(map(holds_placed, values.values())) and not _holds_program(spec):
            return spec(values)
        # The first such task imports dask.array, as the one has that its chunks come from.
        from gpusched.graph.placement.placing import run_other

        return run_other(self._mover, spec, values)

    def may_copy(self, spec: Any) -> bool:
        """Return whether a task may copy inputs to the device of which none is there."""
        return _takes_placed(spec) or _holds_program(spec)


def _takes_placed(spec: Any) -> bool:
    """Return whether a task knows of chunks in device memory, or does not look at its input."""
    if type(spec) is Task and hasattr(spec.func, TAKES_PLACED):
        return all(map(_only_picks_results, spec.args))
    return type(spec) is Alias


def _holds_program(spec: Any) -> bool:
    """Return whether dask has put a program into a task with others, where it gets host arrays."""
    if type(spec) is not Task or spec.func is not execute_subgraph:
        return False
    return any(hasattr(getattr(node, "func", None), TAKES_PLACED) for node in spec.args[0].values())


def _only_picks_results(arg: Any) -> bool:
    """Return whether an argument is no call, or takes one of the results of another task."""
    if not isinstance(arg, Task):
        return True
    # With a program as its function, a task has imported this already.
    from gpusched.graph.running.batch import part

    return arg.func is part and not isinstance(arg.args[0], Task)


def open_task_inputs(store: Store, device: Device) -> TaskInputs | None:
    """Have this process keep chunks of NumPy programs in device memory from now on.

    Parameters
    ----------
    store
        The worker's results.
    device
        Its device; without memory of its own, or if ``gpusched.device`` is off, nothing changes.
    """
    copies = device.copies()
    if copies is None or active().device == OFF:
        return None
    mover = CountingMover(copies)
    placed.install(mover)
    return TaskInputs(store, mover)


def host_results(client: Client) -> Client:
    """Have a client in this process gather NumPy's arrays, as clients elsewhere do."""
    replace_own_gathering(client, _Hosted.of)
    return client


class _Hosted:
    """A client's method, whose results have NumPy's arrays instead of chunks."""

    def __init__(self, gather: Callable[..., Awaitable[Any]]) -> None:
        self._gather = gather

    @classmethod
    def of(cls, gather: Any) -> Any:
        """Return a method whose results have NumPy's arrays, which it may be already."""
        return gather if isinstance(gather, cls) else cls(gather)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return hosted(await self._gather(*args, **kwargs))
