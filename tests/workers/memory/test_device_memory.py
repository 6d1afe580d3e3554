"""What is held, received and reserved in the memory of a GPU, which is emulated here."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import numpy as np
import pytest
from distributed import Client, wait

from gpusched import Cluster
from gpusched.workers.worker import DeviceWorker
from tests.waiting import wait_for
from tests.workers.emulated import EmulatedArray, EmulatedWorker
from tests.workers.memory.small import OWN, PART, admission_of, watch


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, DeviceWorker, DeviceWorker]]:
    """Give a client of two workers in this process, whose GPUs have room for 9 of `PART`."""
    monkeypatch.setattr(DeviceWorker, "_open_device", EmulatedWorker._open_device)
    options = {"gpu": True, "device_memory_limit": 9 * PART}
    with (
        dask.config.set(OWN),
        Cluster(2, 1, processes=False, memory_limit=0, worker_options=options) as cluster,
        Client(cluster) as client,
    ):
        first, second = cluster.workers.values()
        yield client, first, second


def on_device(value: int) -> EmulatedArray:
    from distributed import get_worker

    return get_worker().device.array(np.full(2 * PART, value, np.uint8))


def added(first: EmulatedArray, second: EmulatedArray) -> EmulatedArray:
    from distributed import get_worker

    return get_worker().device.array(first.values + second.values)


def total(array: EmulatedArray) -> int:
    return int(array.values[0])


def test_results_are_received_and_brought_up_within_the_limit_of_each_gpu(
    two: tuple[Client, DeviceWorker, DeviceWorker],
) -> None:
    """Each GPU is full of what the other one's tasks read: results cross, and go up and down."""
    client, *workers = two
    here, there = (each.address for each in workers)
    for number, address in enumerate((here, there)):
        # From now on it is known what such tasks take.
        known = client.submit(on_device, 0, key=f"on_device-{number}", workers=[address])
        wait(known)
        del known
    wait_for(lambda: not any(each.data for each in workers))
    exceeded = [watch(each) for each in workers]
    left = client.map(on_device, range(4), workers=[here], pure=False)
    right = client.map(on_device, range(4), workers=[there], pure=False)
    pairs = zip([*left, *right], [*reversed(right), *reversed(left)], strict=True)
    places = [here, there] * 4
    sums = [
        client.submit(added, *pair, workers=[place], pure=False)
        for pair, place in zip(pairs, places, strict=True)
    ]
    assert client.gather(client.map(total, sums, pure=False)) == [3] * 8
    assert exceeded == [[], []]
    ledgers = [admission_of(each).ledger for each in workers]
    assert all(each.fullest.in_flight or each.most > 6 * PART for each in ledgers)
    wait_for(lambda: not any(each.reserved or each.in_flight for each in ledgers))
