"""Tasks that join chunks, each of which they get from where it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dask.array.core import concatenate3, concatenate_shaped
from dask.typing import Key
from distributed import Client, Event, wait

from gpusched.adapters.tasks import List, Task, TaskRef
from gpusched.graph.running.batch import part
from gpusched.workers.device.host import HostDevice
from gpusched.workers.memory.requests import Running
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.memory.store import Store
from gpusched.workers.memory.streamed_inputs import StoredArray, lendable
from gpusched.workers.worker import DeviceWorker
from tests.waiting import PATIENCE, wait_for
from tests.workers.memory.small import PART, admission_of


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store(HostDevice(), SpillFiles(tempfile.mkdtemp()))
    yield made
    made.close()


def lent(store: Store, function: Any, *arguments: Any, reads: tuple[Key, ...] = ("a", "b")) -> Any:
    task: Any = SimpleNamespace(
        run_spec=Task("joined", function, *arguments),
        dependencies=[SimpleNamespace(key=key) for key in reads],
    )
    return [each.key for each in lendable(task, store)]


def test_only_what_is_copied_whole_is_lent(store: Store) -> None:
    store["a"], store["b"], store["cut"] = np.ones((2, 3)), np.zeros((2, 3)), (np.ones(2),)
    references = List(TaskRef("a"), TaskRef("b"))
    assert lent(store, concatenate3, references) == ["a", "b"]
    assert lent(store, concatenate_shaped, references, [2, 1]) == ["a", "b"]
    assert lent(store, np.concatenate, references) == []
    piece = Task("piece", part, TaskRef("cut"), 0)
    mixed = List(TaskRef("a"), piece)
    assert lent(store, concatenate3, mixed, reads=("a", "cut")) == ["a"]
    twice = List(TaskRef("a"), Task("negative", np.negative, TaskRef("a")))
    assert lent(store, concatenate3, twice, reads=("a",)) == []
    store["b"] = np.ma.ones((2, 3))
    assert lent(store, concatenate3, references) == []


def test_joined_arrays_are_read_once_each_and_not_kept(store: Store) -> None:
    arrays = {key: np.full((2, 3), number, "f4") for number, key in enumerate("abcd")}
    store.update(arrays)
    store.make_room(host_bytes=2 * 24).result()
    assert len(store.files) == 2
    given = [StoredArray(store, key, (2, 3), np.dtype("f4")) for key in "abcd"]
    found = concatenate3([given[:2], given[2:]])
    assert type(found) is np.ndarray and found.dtype == "f4"
    assert (
        found.tolist()
        == np.block([[arrays["a"], arrays["b"]], [arrays["c"], arrays["d"]]]).tolist()
    )
    assert store.metrics()["read_bytes"] == store.files.disk_bytes
    assert sum(map(store.ready, "abcd")) == 2
    # dask asks for missing axes so.
    assert given[1][None, ...].tolist() == arrays["b"][None].tolist()


def made(number: int, count: int) -> np.ndarray:
    return np.full(count, number, np.uint8)


def test_joining_takes_room_for_the_result_and_one_chunk(
    running: tuple[Client, DeviceWorker],
) -> None:
    """Three chunks and their join are 12 of `PART`, of 9.5."""
    client, worker = running
    chunks = [client.submit(made, number, 2 * PART) for number in range(3)]
    joined = client.submit(concatenate3, chunks)
    wait(joined)
    admission = admission_of(worker)
    assert admission.ledger.most <= admission.ledger.limit
    assert admission.counters.in_pieces == 0
    assert joined.result().sum() == (0 + 1 + 2) * 2 * PART


def test_chunk_that_is_lost_before_it_is_joined_is_made_again(
    running: tuple[Client, DeviceWorker],
) -> None:
    client, worker = running
    chunks = [client.submit(made, number, 2 * PART) for number in range(2)]
    wait_for(lambda: all(each.done() for each in chunks))
    worker.data.make_room(host_bytes=4 * PART).result()
    for path in worker.data.files.directory.iterdir():
        path.write_bytes(b"")
    assert client.submit(concatenate3, chunks).result().sum() == 2 * PART
    assert worker.data.metrics()["lost"] >= 1


def test_task_that_is_wanted_again_to_do_more_than_join_gets_arrays(
    running: tuple[Client, DeviceWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was released while it waited for memory, and is sent once more under the same key."""
    client, worker = running
    admission, tasks, opened = admission_of(worker), worker.state.tasks, Event("opened")
    chunks = [client.submit(made, number, 2 * PART, pure=False) for number in range(2)]
    wait(chunks)
    before = client.submit(passes, chunks[0], opened)
    wait_for(lambda: admission.ledger.running == 1)
    joined = client.submit(concatenate3, chunks, key="joined")
    wait_for(lambda: admission.waiting_keys == ["joined"])
    monkeypatch.setattr(Running, "gone", False)
    del joined
    wait_for(lambda: tasks["joined"].state == "cancelled")
    again = client.submit(sums, chunks, key="joined")
    wait_for(lambda: tasks["joined"].state == "executing")
    opened.set()
    assert again.result() == [0, 2 * PART]
    wait(before)


def passes(array: np.ndarray, event: Event) -> np.ndarray:
    assert event.wait(PATIENCE)
    return array + 1


def sums(arrays: list[np.ndarray]) -> list[int]:
    return [int(each.sum()) for each in arrays]
