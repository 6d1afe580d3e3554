"""How many workers, and what each is given; decided without starting any."""

from __future__ import annotations

from typing import Any

import dask.config
import dask.system
import distributed.system
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.cluster import allocation as module
from gpusched.cluster.allocation import (
    Allocation,
    Slot,
    allocate,
    allocate_mixed,
    device_memory,
    sharing,
)
from gpusched.workers.nvml import GpuFacts, UnknownDeviceError
from gpusched.workers.visible_gpus import NoDeviceError

MEMORY = 64 * 2**30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be a machine of 16 cores, 64 GiB and no GPU."""
    monkeypatch.setattr(dask.system, "CPU_COUNT", 16)
    monkeypatch.setattr(distributed.system, "MEMORY_LIMIT", MEMORY)
    monkeypatch.setattr(module, "visible_devices", list)
    monkeypatch.setattr(module.nvml, "facts", lambda device: None)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give that machine three GPUs, the second of the machine's hidden."""
    monkeypatch.setattr(module, "visible_devices", lambda: ["0", "2", "3"])


@pytest.mark.parametrize(
    ("arguments", "workers", "threads"),
    [
        ({}, 4, 4),
        ({"workers": 2}, 2, 8),
        ({"workers": 3}, 3, 6),
        ({"threads": 5}, 3, 5),
        ({"threads": 99}, 1, 99),
        ({"workers": 3, "threads": 2}, 3, 2),
        ({"workers": 0}, 0, 16),
        ({"processes": False}, 1, 16),
        ({"processes": False, "workers": 2}, 2, 8),
        ({"processes": False, "threads": 3}, 1, 3),
    ],
)
def test_cores_are_shared(arguments: dict[str, Any], workers: int, threads: int) -> None:
    made = allocate(**arguments)
    assert (made.workers, made.threads, made.devices) == (workers, threads, ())


@pytest.mark.parametrize(
    ("arguments", "devices"),
    [
        ({}, ("0", "2", "3")),
        ({"gpus": "all"}, ("0", "2", "3")),
        ({"gpus": 2}, ("0", "2")),
        ({"gpus": [2, 0]}, ("3", "0")),
        ({"gpus": "1,2"}, ("2", "3")),
        ({"workers": 1}, ("0",)),
        ({"gpus": 0}, ()),
        ({"gpus": []}, ()),
        ({"processes": False}, ()),
    ],
)
@pytest.mark.usefixtures("gpus")
def test_each_gpu_has_one_worker(arguments: dict[str, Any], devices: tuple[str, ...]) -> None:
    made = allocate(**arguments)
    assert made.devices == devices
    if devices:
        share = max(1, dask.system.CPU_COUNT // len(devices))
        assert (made.workers, made.threads) == (len(devices), share)
        seen = [made.environment(n)["CUDA_VISIBLE_DEVICES"] for n in range(len(devices))]
        assert tuple(seen) == devices
    else:
        assert made.environment(0) == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.usefixtures("gpus")
def test_cpu_workers_beside_gpu_workers_share_the_cores_with_them() -> None:
    on_gpus, beside = allocate_mixed(1)
    assert beside is not None
    assert (on_gpus.workers, on_gpus.threads, beside.workers, beside.threads) == (3, 4, 1, 4)


@pytest.mark.usefixtures("gpus")
def test_threads_that_are_asked_for_are_those_of_all_workers() -> None:
    with dask.config.set({"gpusched.cluster.threads": 2}):
        configured = allocate_mixed(1)
    for on_gpus, beside in (allocate_mixed(1, threads=2), configured):
        assert beside is not None
        assert (on_gpus.threads, beside.threads) == (2, 2)


@pytest.mark.parametrize(
    ("device", "order"),
    [("2", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}), ("GPU-aa", {}), ("", {})],
)
def test_index_means_the_same_to_cuda_as_to_nvml(device: str, order: dict[str, str]) -> None:
    made = Allocation(1, 1, 0, (Slot(device),))
    shared = sharing() if device else {}
    assert made.environment(0) == {"CUDA_VISIBLE_DEVICES": device, **order, **shared}


def test_libraries_leave_room_on_a_gpu_unless_they_are_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    assert sharing() == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def facts(entry: str) -> GpuFacts:
    """Tell of GPUs of 1000 bytes; the third is near cores that are not there."""
    number = int(entry)
    cpus = (0, 1, 2) if number < 3 else (98, 99)
    return GpuFacts(number, f"GPU-{number}", "H200", 1000, cpus, 0, "")


@pytest.fixture
def known(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NVML tell of those GPUs, and the kernel allow cores 1 to 8."""
    monkeypatch.setattr(module.nvml, "facts", facts)
    monkeypatch.setattr(module.affinity, "allowed_cpus", lambda: tuple(range(1, 9)))


@pytest.mark.usefixtures("known")
def test_gpu_worker_gets_its_gpus_cores_and_memory(caplog: pytest.LogCaptureFixture) -> None:
    assert allocate(gpus=1, device_memory_limit=0.5).slots == (Slot("0", "GPU-0", 1, 500, (1, 2)),)
    assert not caplog.text
    assert allocate(gpus="2,").slots == (Slot("3", "GPU-3", 1, 800, tuple(range(1, 9))),)
    assert "none of the cores 98-99 is allowed" in caplog.text


@pytest.mark.usefixtures("known")
def test_several_workers_on_a_gpu_divide_its_limit() -> None:
    made = allocate(gpus="0,0,1,1", device_memory_limit=0.9)
    assert made.devices == ("0", "0", "2", "2")
    assert [(s.uuid, s.share, s.device_memory_limit) for s in made.slots] == [
        ("GPU-0", 2, 450), ("GPU-0", 2, 450), ("GPU-2", 2, 450), ("GPU-2", 2, 450)
    ]  # fmt: skip
    assert made.memory_limit == MEMORY // 4


@pytest.mark.parametrize(
    ("setting", "gpu", "cpu"),
    [(None, True, False), (True, True, True), (False, False, False), (1, True, True),
     (0, False, False)],
)  # fmt: skip
@pytest.mark.usefixtures("known")
def test_pinning_is_a_setting(setting: bool | None, gpu: bool, cpu: bool) -> None:
    with dask.config.set({"gpusched.worker.pin": setting}):
        assert bool(allocate().slot(0).cpus) == gpu
        assert bool(allocate(gpus=0).slot(0).cpus) == cpu
        assert allocate(pin=True).slot(0).cpus
        assert not allocate(pin=False).slot(0).cpus


@pytest.mark.usefixtures("known")
def test_cpu_workers_get_slices_of_the_allowed_cores() -> None:
    slots = allocate(workers=2, gpus=0, pin=True).slots
    assert [slot.cpus for slot in slots] == [(1, 2, 3, 4), (5, 6, 7, 8)]
    assert allocate(workers=2, processes=False, pin=True).slots == (Slot(),)


def test_pin_that_cannot_be_read() -> None:
    with (
        dask.config.set({"gpusched.worker.pin": "no"}),
        pytest.raises(ValueError, match="pin 'no'"),
    ):
        allocate()


@pytest.mark.parametrize("gpus_", [0, "all"])
@pytest.mark.parametrize("limit", ["lots", "auto", -1, "nan"])
@pytest.mark.usefixtures("known")
def test_device_memory_limit_that_cannot_be_read(limit: Any, gpus_: Any) -> None:
    with pytest.raises(ValueError, match="device memory limit"):
        allocate(gpus=gpus_, device_memory_limit=limit)


@pytest.mark.parametrize(
    ("limit", "total", "share", "each"),
    [(0.8, 1000, 1, 800), (0.8, 0, 1, 0), ("2 kB", 0, 2, 1000), (0, 1000, 1, 0),
     ("10 GiB", 0, 1, 10 * 2**30), ("0.5", 1000, 4, 125)],
)  # fmt: skip
def test_device_memory_limit(limit: Any, total: int, share: int, each: int) -> None:
    assert device_memory(limit, total, share) == each


def test_device_that_nvml_does_not_know_is_named(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(entry: str) -> None:
        raise UnknownDeviceError(f"NVML knows no GPU {entry}")

    monkeypatch.setattr(module.nvml, "facts", fail)
    with pytest.raises(NoDeviceError, match="no such GPU: 2"):
        allocate(gpus=[1])


@pytest.mark.usefixtures("gpus")
def test_more_workers_than_gpus_contradict() -> None:
    with pytest.raises(ValueError, match="3 workers were asked for and 2 GPUs"):
        allocate(workers=3, gpus=2)


def test_gpus_that_are_not_there_are_an_error() -> None:
    with pytest.raises(NoDeviceError, match="none was found"):
        allocate(gpus="all")


@pytest.mark.parametrize(
    ("limit", "each"),
    [
        ("auto", MEMORY // 4),
        (None, MEMORY // 4),
        (0, 0),
        ("0", 0),
        (2**30, 2**30),
        ("1 GiB", 2**30),
        ("1GB", 10**9),
        (0.25, MEMORY // 4),
        ("0.25", MEMORY // 4),
        (1.0, MEMORY),
        ("1 TiB", 2**40),
    ],
)
def test_memory_limit(limit: Any, each: int) -> None:
    assert allocate(workers=4, memory_limit=limit).memory_limit == each


@pytest.mark.parametrize("limit", ["", "lots", "4 Quux", "-1", -5, "nan", "inf", "GiB 4", "GiB",
                                   1, "5"])  # fmt: skip
def test_memory_limit_that_cannot_be_read(limit: Any) -> None:
    with pytest.raises(ValueError, match="memory limit"):
        allocate(workers=1, memory_limit=limit)


@pytest.mark.parametrize("arguments", [{"workers": -1}, {"threads": 0}])
def test_number_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cannot be (-1|0): write a whole number"):
        allocate(**arguments)


def test_configuration_is_asked_where_an_argument_is_left_out() -> None:
    settings = {"workers": 5, "threads": 2, "memory-limit": "1 GiB", "gpus": 0}
    with dask.config.set({f"gpusched.cluster.{key}": value for key, value in settings.items()}):
        assert allocate() == Allocation(5, 2, 2**30, (Slot(),))
        assert allocate(workers=1).workers == 1


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 256))
def test_default_never_leaves_a_worker_without_a_core(
    workers: int, threads: int, cores: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask.system, "CPU_COUNT", cores)
        free, fixed = allocate(), allocate(workers=workers)
    assert free.workers * free.threads == cores
    assert fixed.threads >= 1
    assert cores <= fixed.workers * fixed.threads < cores + fixed.workers
