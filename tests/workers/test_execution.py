"""Running tasks where memory is short, and where the device is lost."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from dask.utils import parse_bytes
from distributed import Client

from gpusched import Cluster
from gpusched.plan.shortage import HostResult, wanted
from gpusched.workers.device import HostDevice, LostContextError, OutOfDeviceMemoryError
from gpusched.workers.execution import Execution
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.memory.store import Store
from tests.waiting import PATIENCE
from tests.workers.emulated import EmulatedArray, EmulatedDevice

SIZE = 1000


class Left(BaseException):
    """The process would have ended here."""


def leave(reason: str) -> None:
    raise Left(reason)


@pytest.fixture
def device() -> EmulatedDevice:
    return EmulatedDevice(SIZE)


@pytest.fixture
def store(device: EmulatedDevice, tmp_path: Path) -> Iterator[Store]:
    store = Store(device, SpillFiles(tmp_path / "files"))
    yield store
    store.close()


@pytest.fixture
def execution(device: EmulatedDevice, store: Store) -> Execution:
    return Execution(device, store, leave)


def test_result_is_complete_when_the_task_ends(
    execution: Execution, device: EmulatedDevice
) -> None:
    assert execution.run(lambda values: values["a"] + 1, "key", {"a": 1}) == 2
    assert device.synchronized == 1


def test_error_of_the_task_is_the_tasks_own(execution: Execution) -> None:
    with pytest.raises(ZeroDivisionError):
        execution.run(lambda values: 1 / 0, "key", {})
    assert execution.recoveries.out_of_memory == 0


def test_full_device_is_emptied_and_the_task_run_again(
    execution: Execution, device: EmulatedDevice, store: Store
) -> None:
    for number in range(9):
        store[number] = device.array(np.full(100, number, np.uint8))
    result = execution.run(lambda values: device.array(np.ones(500, np.uint8)), "key", {})
    assert result.nbytes == 500
    assert store.held_on_device() == 0
    assert (execution.recoveries.retried, execution.recoveries.recovered) == (1, 1)
    del result
    np.testing.assert_array_equal(store[5].values, np.full(100, 5, np.uint8))


def test_inputs_of_the_task_are_not_copied_away(
    execution: Execution, device: EmulatedDevice, store: Store
) -> None:
    store["input"] = device.array(np.ones(400, np.uint8))
    store["other"] = device.array(np.ones(400, np.uint8))
    values = {"input": store["input"]}
    execution.run(lambda values: device.array(np.ones(500, np.uint8)), "key", values)
    assert store.ready("input")
    assert not store.ready("other")


def test_what_cannot_fit_says_how_much_there_was(
    execution: Execution, device: EmulatedDevice, store: Store
) -> None:
    store["other"] = device.array(np.ones(400, np.uint8))
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        execution.run(lambda values: device.array(np.ones(SIZE + 1, np.uint8)), "the-key", {})
    text = str(caught.value)
    for told in ("'the-key'", "emulated GPU", "1001 bytes", "results still held: 0 B", "limit"):
        assert told in text
    assert execution.recoveries.recovered == 0


def test_kernel_that_does_not_fit_runs_in_pieces(
    execution: Execution, device: EmulatedDevice
) -> None:
    def task(values: dict[str, Any]) -> Any:
        part = device.array(np.ones(4 * SIZE // wanted(), np.uint8))
        del part
        return HostResult(np.arange(10)) if wanted() > 1 else None

    frozen = execution.run(task, "key", {})
    assert execution.recoveries.in_pieces == 1
    thawed = device.thaw(frozen)
    assert isinstance(thawed, EmulatedArray)
    np.testing.assert_array_equal(thawed.values, np.arange(10))


def test_result_without_room_is_kept_as_a_spilled_one(device: EmulatedDevice, store: Store) -> None:
    store["key"] = device.adopt(np.arange(10))
    assert device.used() == 0
    assert not store.ready("key")
    np.testing.assert_array_equal(store["key"].values, np.arange(10))


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_kept_error_does_not_keep_the_arrays(
    execution: Execution, device: EmulatedDevice, error: type[Exception]
) -> None:
    seen: list[weakref.ref[EmulatedArray]] = []

    def task(values: dict[str, Any]) -> Any:
        array = device.array(np.ones(100, np.uint8))
        seen.append(weakref.ref(array))
        try:
            raise KeyError("first")
        except KeyError:
            raise error("then") from None

    with pytest.raises((error, OutOfDeviceMemoryError)) as caught:
        execution.run(task, "key", {})
    gc.collect()
    assert caught.value.__traceback__ is not None
    assert [array() for array in seen] == [None] * len(seen)
    assert device.used() == 0


def test_debugger_in_this_process_finds_the_variables(store: Store) -> None:
    def task(values: dict[str, Any]) -> Any:
        told = 7
        raise ValueError(told)

    execution = Execution(HostDevice(), store, leave, keep_frames=True)
    with pytest.raises(ValueError, match=r"^7$") as caught:
        execution.run(task, "key", {})
    assert caught.traceback[-1].frame.f_locals["told"] == 7


def test_lost_device_ends_the_process_and_not_the_task(execution: Execution) -> None:
    def task(values: dict[str, Any]) -> Any:
        raise LostContextError("an illegal address was read")

    with pytest.raises(Left, match="illegal address"):
        execution.run(task, "key", {})


def test_memory_error_on_the_host_spills_to_disk(tmp_path: Path) -> None:
    store = Store(HostDevice(), SpillFiles(tmp_path / "files"))
    store["other"] = np.ones(1000)
    attempts: list[int] = []

    def task(values: dict[str, Any]) -> Any:
        attempts.append(len(store.files))
        if len(attempts) == 1:
            raise MemoryError
        return 7

    assert Execution(HostDevice(), store, leave).run(task, "key", {}) == 7
    assert attempts == [0, 1]
    store.close()


def test_host_without_room_says_what_the_process_takes(tmp_path: Path) -> None:
    def task(values: dict[str, Any]) -> Any:
        raise MemoryError("Unable to allocate 1.00 PiB")

    store = Store(HostDevice(), SpillFiles(tmp_path / "files"))
    # What running out of memory frees is free before, too.
    gc.collect()
    HostDevice().free_unused()
    taken = psutil.Process().memory_info().rss
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        Execution(HostDevice(), store, leave).run(task, "key", {})
    store.close()
    text = str(caught.value)
    assert "ran out of memory on host (Unable to allocate 1.00 PiB)" in text
    told = re.search(r"taken by this process: ([^,]+),", text)
    assert told is not None
    assert parse_bytes(told[1]) == pytest.approx(taken, rel=0.2)


def test_worker_without_room_says_what_its_process_takes() -> None:
    with Cluster(1, 1, gpus=0) as cluster, Client(cluster) as client:
        with pytest.raises(OutOfDeviceMemoryError, match="on host") as caught:
            client.submit(np.ones, 2**50).result(timeout=PATIENCE)
        (taken,) = client.run(lambda: psutil.Process().memory_info().rss).values()
    told = re.search(r"taken by this process: ([^,]+),", str(caught.value))
    assert told is not None
    assert parse_bytes(told[1]) == pytest.approx(taken, rel=0.2)
