"""What computes is told from this machine, or from what the scheduler says of its workers."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import dask
import pytest

from gpusched.chunking import target as module
from gpusched.chunking.target import (
    BANDWIDTH_ALL,
    BANDWIDTH_ONE,
    DISTRIBUTED_TASK,
    GPU_BANDWIDTH,
    TASK,
    here,
    of_client,
    of_workers,
)
from gpusched.store.processors import cores

GIB = 1 << 30


def worker(threads: int = 1, memory: int = 8 * GIB, gpu: int = 0) -> dict[str, Any]:
    """Return a worker as distributed's scheduler describes it."""
    kind = "cuda" if gpu else "cpu"
    device = {"kind": kind, "memory_limit": gpu}
    return {
        "nthreads": threads,
        "memory_limit": memory,
        "metrics": {"gpusched": {"device": device}},
    }


def test_this_process() -> None:
    found = here()
    assert (found.kind, found.threads) == ("cpu", cores())
    assert found.bandwidth == min(BANDWIDTH_ONE * cores(), BANDWIDTH_ALL)
    assert found.memory * found.threads > 1 << 28
    assert found.task_seconds == TASK


def test_workers_without_a_gpu() -> None:
    found = of_workers({"tcp://a:1": worker(2), "tcp://a:2": worker(4), "tcp://b:1": worker(2)})
    assert (found.kind, found.threads, found.memory) == ("cpu", 8, 2 * GIB)
    assert found.bandwidth == 8 * BANDWIDTH_ONE
    assert found.task_seconds == DISTRIBUTED_TASK
    assert found.name == "3 workers with 8 threads"


def test_workers_with_a_gpu_count_where_there_are_any() -> None:
    workers = {f"tcp://a:{k}": worker(gpu=40 * GIB) for k in range(4)}
    found = of_workers({**workers, "tcp://a:9": worker(16)})
    assert (found.kind, found.threads, found.memory) == ("cuda", 4, 40 * GIB)
    assert found.bandwidth == 4 * GPU_BANDWIDTH


def test_threads_of_a_large_machine_share_its_bandwidth() -> None:
    found = of_workers({"tcp://a:1": worker(64), "tcp://a:2": worker(64), "tcp://b:1": worker(2)})
    assert found.bandwidth == BANDWIDTH_ALL + 2 * BANDWIDTH_ONE


def test_workers_of_distributed_s_own() -> None:
    found = of_workers({"tcp://a:1": {"nthreads": 2, "memory_limit": 0, "metrics": {}}})
    assert found.kind == "cpu" and found.memory > 1 << 28


def test_no_workers_yet() -> None:
    found = of_workers({})
    assert "no workers yet" in found.name
    assert found.threads == cores() and found.task_seconds == DISTRIBUTED_TASK


class Client:
    """Answers as distributed's client does, and counts how often it was asked."""

    def __init__(self, address: str) -> None:
        self.scheduler = SimpleNamespace(address=address)
        self.asked = 0

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        self.asked += 1
        return {"workers": {"tcp://a:1": worker(2)}}


def test_a_scheduler_is_not_asked_for_each_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_told", {})
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    first, second = Client("tcp://s:1"), Client("tcp://s:2")
    assert of_client(first) == of_client(first)
    assert first.asked == 1
    of_client(second)
    assert second.asked == 1
    clock[0] += module.REMEMBERED + 1
    of_client(second)
    assert second.asked == 2


def test_an_answer_without_the_workers_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """distributed's client asks for none every two seconds, and keeps one answer for all."""
    monkeypatch.setattr(module, "_told", {})
    answers = [{"n_workers": 1, "workers": {}}, {"n_workers": 1, "workers": {"a": worker(2)}}]
    client = Client("tcp://s:1")
    monkeypatch.setattr(client, "scheduler_info", lambda n_workers: answers.pop(0))
    assert of_client(client) == of_workers({"a": worker(2)})


def test_a_gpu_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"MemoryClockRate": 2_619_000, "GlobalMemoryBusWidth": 5120}
    device = SimpleNamespace(attributes=attributes, mem_info=(70 * GIB, 80 * GIB))
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with dask.config.set({"array.backend": "cupy"}):
        found = here()
    assert found.kind == "cuda"
    assert found.memory == 80 * GIB // cores()
    assert found.bandwidth == pytest.approx(3.35e12, rel=0.01)  # of an H100


def test_other_schedulers_than_the_client_s(monkeypatch: pytest.MonkeyPatch) -> None:
    import distributed

    monkeypatch.setattr(distributed, "default_client", lambda: Client("tcp://s:3"))
    monkeypatch.setattr(module, "_told", {})
    assert module.target().name == "1 worker with 2 threads"
    with dask.config.set(scheduler="threads"):
        assert module.target() == here()


def test_a_client_s_workers() -> None:
    from gpusched import local

    with local(threads=3):
        found = module.target()
    assert (found.kind, found.threads) == ("cpu", 3)
    assert found.task_seconds == DISTRIBUTED_TASK
