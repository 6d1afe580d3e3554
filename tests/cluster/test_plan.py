"""How many workers, and what each is given; decided without starting any."""

from __future__ import annotations

from typing import Any

import dask.config
import dask.system
import distributed.system
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.cluster import plan as module
from gpusched.cluster.plan import Plan, Slot, plan
from gpusched.workers.devices import NoDeviceError

MEMORY = 64 * 2**30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be a machine of 16 cores, 64 GiB and no GPU."""
    monkeypatch.setattr(dask.system, "CPU_COUNT", 16)
    monkeypatch.setattr(distributed.system, "MEMORY_LIMIT", MEMORY)
    monkeypatch.setattr(module, "visible_devices", lambda: [])


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
    made = plan(**arguments)
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
    made = plan(**arguments)
    assert made.devices == devices
    if devices:
        assert (made.workers, made.threads) == (len(devices), 1)
        seen = [made.environment(n)["CUDA_VISIBLE_DEVICES"] for n in range(len(devices))]
        assert tuple(seen) == devices
    else:
        assert made.environment(0) == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.usefixtures("gpus")
def test_more_workers_than_gpus_contradict() -> None:
    with pytest.raises(ValueError, match="3 workers were asked for and 2 GPUs"):
        plan(workers=3, gpus=2)


def test_gpus_that_are_not_there_are_an_error() -> None:
    with pytest.raises(NoDeviceError, match="none was found"):
        plan(gpus="all")


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
        (1, 1),
        ("1 TiB", 2**40),
    ],
)
def test_memory_limit(limit: Any, each: int) -> None:
    assert plan(workers=4, memory_limit=limit).memory_limit == each


@pytest.mark.parametrize("limit", ["", "lots", "4 Quux", "-1", -5, "nan", "inf", "GiB 4", "GiB"])
def test_memory_limit_that_cannot_be_read(limit: Any) -> None:
    with pytest.raises(ValueError, match="memory limit"):
        plan(workers=1, memory_limit=limit)


@pytest.mark.parametrize("arguments", [{"workers": -1}, {"threads": 0}])
def test_number_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        plan(**arguments)


def test_configuration_is_asked_where_an_argument_is_left_out() -> None:
    settings = {"workers": 5, "threads": 2, "memory-limit": "1 GiB", "gpus": 0}
    with dask.config.set({f"gpusched.cluster.{key}": value for key, value in settings.items()}):
        assert plan() == Plan(5, 2, 2**30, (Slot(),))
        assert plan(workers=1).workers == 1


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 256))
def test_default_never_leaves_a_worker_without_a_core(
    workers: int, threads: int, cores: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask.system, "CPU_COUNT", cores)
        free, fixed = plan(), plan(workers=workers)
    assert free.workers * free.threads == cores
    assert fixed.threads >= 1
    assert cores <= fixed.workers * fixed.threads < cores + fixed.workers
