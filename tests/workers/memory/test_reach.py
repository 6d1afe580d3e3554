"""Which memory a worker's tasks take, and what is in it."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpusched.workers.device import HostDevice
from gpusched.workers.memory.reach import DeviceMemory, HostMemory, reach
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.memory.store import Store
from tests.workers.emulated import EmulatedDevice


def worker_of(device: Any, limit: int | None = None) -> Any:
    manager = SimpleNamespace(memory_limit=limit, memory_pause_fraction=0.8)
    return SimpleNamespace(nanny=None, device=device, memory_manager=manager)


def test_worker_without_a_limit_has_no_memory_to_plan() -> None:
    assert reach(worker_of(HostDevice())) is None
    assert reach(worker_of(EmulatedDevice(1000), limit=1000)) is None


def test_tasks_of_a_worker_without_a_gpu_stay_below_where_it_is_paused() -> None:
    memory = reach(worker_of(HostDevice(), limit=1000))
    assert isinstance(memory, HostMemory)
    assert (memory.limit, memory.hard) == (750, math.inf)


def test_results_on_a_gpu_move_to_the_host_but_for_those_in_use(tmp_path: Path) -> None:
    device = EmulatedDevice(1000, memory_limit=800)
    worker = worker_of(device)
    worker.data = store = Store(device, SpillFiles(tmp_path / "files"))
    memory = reach(worker)
    assert isinstance(memory, DeviceMemory) and memory.limit == 800
    for name in "abc":
        store[name] = device.array(np.zeros(200, np.uint8))
    store.in_use = lambda: ["a"]
    assert (memory.held(), memory.resident(), memory.is_host) == (600, 600, False)
    assert memory.spillable(["b"]) == 200
    assert memory.make_room(150, ["b"]).result() == 200
    assert (memory.held(), memory.resident()) == (400, 400)
    assert store.ready("a") and store.ready("b") and not store.ready("c")
    store["on host"] = np.zeros(200, np.uint8)
    assert [memory.lacks(key) for key in ("a", "c", "on host")] == [False, True, False]
    assert [memory.lacks(key, copies=True) for key in ("a", "c", "on host")] == [False, True, True]
    store.close()


@pytest.mark.parametrize("may_copy", [True, False])
def test_tasks_that_may_copy_inputs_to_the_gpu_are_known(may_copy: bool, tmp_path: Path) -> None:
    device = EmulatedDevice(1000, memory_limit=800)
    worker = worker_of(device)
    worker.data = store = Store(device, SpillFiles(tmp_path / "files"))
    worker.execution = SimpleNamespace(inputs=SimpleNamespace(may_copy=lambda spec: may_copy))
    store["there"] = device.array(np.zeros(200, np.uint8))
    store["here"] = np.zeros(200, np.uint8)

    def task(*keys: str) -> Any:
        return SimpleNamespace(run_spec=abs, dependencies=[SimpleNamespace(key=k) for k in keys])

    memory = DeviceMemory(worker)
    assert (memory.copies(task("here")), memory.copies(task("here", "there"))) == (may_copy, True)
    worker.execution.inputs = None
    assert not memory.copies(task("here", "there"))
    store.close()
