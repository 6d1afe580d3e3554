"""Fetching over two connections: everything once, busy workers asked again, failures told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
from dask.typing import Key
from distributed import Client
from distributed.worker_state_machine import (
    GatherDepBusyEvent,
    GatherDepNetworkFailureEvent,
    GatherDepSuccessEvent,
    StateMachineEvent,
)

from gpusched import Cluster
from gpusched.workers import split_transfers

COMMON: dict[str, Any] = {"worker": "tcp://a:1", "total_nbytes": 3, "stimulus_id": "test"}
Answer = Callable[[Collection[Key]], StateMachineEvent]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_transfers, "_PATIENCE", 0.001)


def success(keys: Collection[Key]) -> GatherDepSuccessEvent:
    return GatherDepSuccessEvent(**COMMON, data={key: str(key) for key in keys})


def fetched(answer: Answer, *parts: Collection[Key]) -> tuple[StateMachineEvent, list[Any]]:
    """Return what fetching gives where `answer` tells what each request is answered with."""
    asked = []

    async def fetch(keys: Collection[Key]) -> StateMachineEvent:
        asked.append(set(keys))
        event = answer(keys)
        await asyncio.sleep(0)
        return event

    return asyncio.run(split_transfers.fetch_parts(fetch, parts)), asked


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_everything_is_fetched_once(count: int) -> None:
    event, asked = fetched(success, *[{f"a{n}", f"b{n}"} for n in range(count)])
    assert isinstance(event, GatherDepSuccessEvent)
    assert (event.worker, event.total_nbytes) == ("tcp://a:1", 3)
    assert event.data == {key: key for n in range(count) for key in (f"a{n}", f"b{n}")}
    assert len(asked) == count


def test_two_requests_are_on_their_way_at_a_time() -> None:
    now = most = 0

    async def fetch(keys: Collection[Key]) -> StateMachineEvent:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return success(keys)

    asyncio.run(split_transfers.fetch_parts(fetch, [{n} for n in range(5)]))
    assert most == 2


def test_busy_worker_is_told_to_the_state_machine() -> None:
    event, asked = fetched(lambda keys: GatherDepBusyEvent(**COMMON), {"a"}, {"b"}, {"c"})
    assert isinstance(event, GatherDepBusyEvent)
    assert {"c"} not in asked


def test_busy_worker_that_has_given_something_is_asked_again() -> None:
    answers = {"a": 0, "b": 0, "c": 0}

    def answer(keys: Collection[Key]) -> StateMachineEvent:
        [key] = keys
        answers[str(key)] += 1
        return (
            success(keys) if key == "a" or answers[str(key)] > 2 else GatherDepBusyEvent(**COMMON)
        )

    event, _ = fetched(answer, {"a"}, {"b"}, {"c"})
    assert isinstance(event, GatherDepSuccessEvent)
    assert event.data == {"a": "a", "b": "b", "c": "c"}
    assert answers == {"a": 1, "b": 3, "c": 3}


def test_failure_ends_it() -> None:
    def answer(keys: Collection[Key]) -> StateMachineEvent:
        return GatherDepNetworkFailureEvent(**COMMON) if "b" in keys else success(keys)

    event, asked = fetched(answer, *[{letter} for letter in "abcdefg"])
    assert isinstance(event, GatherDepNetworkFailureEvent)
    assert len(asked) <= 3


def make(seed: int) -> np.ndarray:
    return np.full(1_200_000, float(seed))


def total(chunks: list[np.ndarray]) -> list[float]:
    return [float(chunk.sum()) for chunk in chunks]


def test_results_arrive_over_two_connections() -> None:
    with Cluster(2, 1, gpus=0, fuse=False) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        holder, getter = client.sync(client.scheduler.identity)["workers"]
        chunks = [client.submit(make, n, workers=[holder]) for n in range(5)]
        client.gather([client.submit(np.sum, chunk, workers=[holder]) for chunk in chunks])
        found = client.submit(total, chunks, workers=[getter]).result()
        assert found == [1_200_000.0 * n for n in range(5)]
        log = client.run(lambda dask_worker: list(dask_worker.transfer_outgoing_log))[holder]
        sent = [set(entry["keys"]) for entry in log if entry["who"] == getter]
        assert sorted(map(sorted, sent)) == sorted([chunk.key] for chunk in chunks)
