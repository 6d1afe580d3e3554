"""The memory that a worker's tasks take, as its ledger observes it."""

from __future__ import annotations

import math
from collections.abc import Collection
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from dask.typing import Key
from distributed.worker_state_machine import TaskState

from gpusched.graph.passes.fitting import MARGIN, for_tasks, survived
from gpusched.workers.memory.high_water import HighWater, Resident
from gpusched.workers.onstream import OnStream
from gpusched.workers.pool.host import HostPool

if TYPE_CHECKING:
    from gpusched.workers.worker import DeviceWorker


class Reach(Protocol):
    """One memory."""

    limit: int
    """Bytes that may be taken."""
    hard: float
    """Bytes that the process does not survive."""

    def held(self) -> int:
        """Return the bytes of results."""

    def spillable(self, keep: Collection[Key]) -> int:
        """Return the bytes of those that may be moved out of it, but for some."""

    def lacks(self, key: Key, copies: bool = False) -> bool:
        """Return whether a result is brought into it by one who reads it, or may copy it there."""

    def copies(self, task: TaskState) -> bool:
        """Return whether a task may copy inputs into it that are elsewhere."""

    margin: float
    """Bytes that are left for what cannot be foreseen."""
    is_host: bool
    """Whether it is host memory, where tasks may get the chunks that they join one by one."""

    def resident(self) -> int | None:
        """Return the bytes that the process takes; None where others take them too."""

    def look(self) -> Resident | None:
        """Return what the process takes, and the most that it took since the last look.

        None where others take it too, or where that is not known.
        """

    def close(self) -> None:
        """Look no more."""

    def unused(self) -> int:
        """Return the bytes of free blocks."""

    def free_unused(self) -> int:
        """Give free blocks back; return their bytes."""

    def make_room(self, nbytes: int, keep: Collection[Key]) -> Future[int]:
        """Start moving so many bytes of results out of the memory, but for some."""


class HostMemory:
    """The host memory of a worker without a GPU."""

    is_host = True

    def __init__(self, worker: DeviceWorker) -> None:
        manager = worker.memory_manager
        assert manager.memory_limit
        self._worker = worker
        self.limit = for_tasks(manager.memory_limit, pause=manager.memory_pause_fraction)
        self.hard = math.inf if worker.nanny is None else survived(manager.memory_limit, own=0)
        self.margin = MARGIN * manager.memory_limit
        self._high_water = None if worker.nanny is None else HighWater()

    def held(self) -> int:
        """Return the bytes of results."""
        return self._worker.data.held_on_host()

    def spillable(self, keep: Collection[Key]) -> int:
        """Return the bytes of those that may be moved to disk, but for some."""
        return self._worker.data.movable_from_host(keep)

    def lacks(self, key: Key, copies: bool = False) -> bool:
        """Return whether a result is in a file."""
        return not self._worker.data.ready(key)

    def copies(self, task: TaskState) -> bool:
        """Return False: results are nowhere else."""
        return False

    def resident(self) -> int | None:
        """Return the bytes that the process takes; None where it is not the worker's own."""
        worker = self._worker
        return None if worker.nanny is None else int(worker.monitor.get_process_memory())

    def look(self) -> Resident | None:
        """Return what the process takes, and the most that it took since the last look."""
        return None if self._high_water is None else self._high_water.look()

    def close(self) -> None:
        """Look no more."""
        if self._high_water is not None:
            self._high_water.close()

    def unused(self) -> int:
        """Return the bytes of free chunk buffers."""
        return HostPool().held()

    def free_unused(self) -> int:
        """Give free chunk buffers back; return their bytes."""
        return HostPool().free_unused()

    def make_room(self, nbytes: int, keep: Collection[Key]) -> Future[int]:
        """Start moving so many bytes of results to disk, but for some."""
        return self._worker.data.make_room(host_bytes=nbytes, keep=keep)


class DeviceMemory:
    """The memory of a worker's GPU."""

    hard = math.inf
    margin = math.inf
    is_host = False

    def __init__(self, worker: DeviceWorker) -> None:
        self._worker = worker
        self.limit = worker.device.memory_limit

    def held(self) -> int:
        """Return the bytes of results."""
        return self._worker.data.held_on_device()

    def spillable(self, keep: Collection[Key]) -> int:
        """Return the bytes of those that may be moved to host memory, but for some."""
        return self._worker.data.movable_from_device(keep)

    def lacks(self, key: Key, copies: bool = False) -> bool:
        """Return whether a result is the device's and not there, or is the host's to be copied."""
        data = self._worker.data
        return not data.ready(key) if data.is_of_device(key) else copies

    def copies(self, task: TaskState) -> bool:
        """Return whether a task may copy inputs that are the host's."""
        inputs, data = self._worker.execution.inputs, self._worker.data
        if inputs is None:
            return False
        spec = task.run_spec.spec if isinstance(task.run_spec, OnStream) else task.run_spec
        on_device = any(data.is_of_device(each.key) for each in task.dependencies)
        return on_device or inputs.may_copy(spec)

    def resident(self) -> int | None:
        """Return the bytes that arrays take, those of running tasks included."""
        return self._worker.device.used()

    def look(self) -> Resident | None:
        """Return None: what arrays took between two looks is not known."""
        return None

    def close(self) -> None:
        """Do nothing."""

    def unused(self) -> int:
        """Return 0: free blocks are not among those that arrays take."""
        return 0

    def free_unused(self) -> int:
        """Give free blocks back; return 0: they are not among those that arrays take."""
        return 0

    def make_room(self, nbytes: int, keep: Collection[Key]) -> Future[int]:
        """Start moving so many bytes of results to host memory, but for some."""
        return self._worker.data.make_room(device_bytes=nbytes, keep=keep)


def reach(worker: DeviceWorker) -> Reach | None:
    """Return the memory that a worker's tasks take; None if it has no limit."""
    if worker.device.kind != "cpu":
        return DeviceMemory(worker) if worker.device.memory_limit else None
    return HostMemory(worker) if worker.memory_manager.memory_limit else None
