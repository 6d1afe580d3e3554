"""Tasks that wait for memory on a real worker."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, futures_of, secede, wait

import gpusched
from gpusched import Cluster
from gpusched.adapters.tasks import Alias
from gpusched.cluster import fitting
from gpusched.graph.passes.fitting import DoesNotFitError
from gpusched.store.statistics import reset_statistics, statistics
from gpusched.workers.memory.requests import Running
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.onstream import OnStream
from gpusched.workers.worker import DeviceWorker
from tests.benchmarks.memory.asked import begin_counting, end_counting
from tests.waiting import PATIENCE, wait_for
from tests.workers.memory.small import OWN, PART, admission_of


class Gate:
    """Keeps tasks until it is opened."""

    def __init__(self) -> None:
        self.entered = 0
        self.opened = threading.Event()
        self.left = threading.Event()


GATE = Gate()


def at_the_gate(array: np.ndarray, number: int) -> int:
    GATE.entered += 1
    assert GATE.opened.wait(PATIENCE)
    return int(array[0]) + number


def past_the_gate(array: np.ndarray) -> int:
    assert GATE.left.wait(PATIENCE)
    return int(array[0])


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setitem(globals(), "GATE", made)
    yield made
    made.opened.set()
    made.left.set()


def test_task_waits_for_another_and_starts_when_that_has_ended(
    running: tuple[Client, DeviceWorker], gate: Gate
) -> None:
    client, worker = running
    reset_statistics()
    x = client.scatter(np.ones(4 * PART, np.uint8))
    futures = [client.submit(at_the_gate, x, number, pure=False) for number in range(2)]
    admission = admission_of(worker)
    wait_for(lambda: admission.waiting == 1 and gate.entered == 1)
    assert admission.metrics()["reason"] == "running tasks"
    assert admission.metrics()["reserved_bytes"] >= 4 * PART
    gate.opened.set()
    assert client.gather(futures) == [1, 2]
    wait_for(lambda: admission.ledger.running == 0)
    assert admission.metrics()["reserved_bytes"] == 0
    assert (admission.waiting, admission.counters.waited) == (0, 1)
    counted = statistics()
    assert counted.memory_reasons == {"running tasks": 1}
    fullest = counted.memory_fullest
    assert fullest == admission.ledger.fullest
    assert fullest.held >= 4 * PART <= fullest.reserved


def test_what_others_take_is_told_while_no_task_starts(
    running: tuple[Client, DeviceWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = running
    admission = admission_of(worker)
    x = client.scatter(np.ones(PART, np.uint8))
    monkeypatch.setattr(admission._memory, "resident", lambda: admission.ledger.own + 5 * PART)
    wait_for(lambda: admission.metrics()["unmanaged_bytes"] > admission.ledger.own)
    told = admission.metrics()
    assert told["unmanaged_bytes"] == admission.ledger.own + 4 * PART
    assert told["held_bytes"] >= PART
    del x


def test_what_a_process_takes_for_itself_is_what_it_took_when_nothing_ran(
    running: tuple[Client, DeviceWorker], monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    client, worker = running
    admission = admission_of(worker)
    monkeypatch.setattr(admission._memory, "resident", lambda: 5 * PART)
    monkeypatch.setattr(admission._memory, "unused", lambda: 2 * PART)
    # What is in free buffers is given back to whoever needs it.
    wait_for(lambda: admission.metrics()["own_bytes"] == 3 * PART)
    future = client.submit(at_the_gate, np.zeros(1), 0)
    wait_for(lambda: gate.entered == 1)
    monkeypatch.setattr(admission._memory, "resident", lambda: 9 * PART)
    assert admission.metrics()["own_bytes"] == 3 * PART
    gate.opened.set()
    assert future.result() == 0


def test_task_of_a_size_that_was_not_seen_waits_for_what_smaller_ones_have_taken(
    running: tuple[Client, DeviceWorker], gate: Gate
) -> None:
    client, worker = running
    admission = admission_of(worker)
    admission.estimates.learn("at_the_gate", PART, 3 * PART)
    x = client.scatter(np.ones(2 * PART, np.uint8))
    futures = [client.submit(at_the_gate, x, number, pure=False) for number in range(2)]
    # Two of 6 parts do not fit beside 2 of inputs, though two of 2 would.
    wait_for(lambda: admission.waiting == 1 and gate.entered == 1)
    gate.opened.set()
    assert client.gather(futures) == [1, 2]


def test_cancelled_task_waits_no_more(running: tuple[Client, DeviceWorker], gate: Gate) -> None:
    client, worker = running
    x = client.scatter(np.ones(4 * PART, np.uint8))
    futures = [client.submit(at_the_gate, x, number, pure=False) for number in range(2)]
    admission = admission_of(worker)
    wait_for(lambda: admission.waiting == 1 and gate.entered == 1)
    next(each for each in futures if each.key in admission.waiting_keys).cancel()
    wait_for(lambda: admission.waiting == 0)
    assert gate.entered == 1


def test_task_that_is_cancelled_and_wanted_again_while_it_waits_runs_as_sent_last(
    running: tuple[Client, DeviceWorker], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = running
    x = client.scatter(np.ones(4 * PART, np.uint8))
    admission, tasks = admission_of(worker), worker.state.tasks
    first = client.submit(at_the_gate, x, 1)
    wait_for(lambda: gate.entered == 1)
    waiting = client.submit(past_the_gate, x, key="twice")
    wait_for(lambda: admission.waiting_keys == ["twice"])
    # Both messages usually come at once; here, nobody looks in between.
    monkeypatch.setattr(Running, "gone", False)
    del waiting
    wait_for(lambda: tasks["twice"].state == "cancelled")
    again = client.submit(total, x, key="twice")
    wait_for(lambda: tasks["twice"].state == "executing")
    assert admission.waiting_keys == ["twice"]
    gate.opened.set()
    assert (first.result(), again.result()) == (2, 4 * PART)
    assert isinstance(tasks["twice"].run_spec, OnStream)
    wait_for(lambda: admission.ledger.idle and not admission._granted)


def test_whatever_becomes_of_tasks_nothing_stays_reserved(
    running: tuple[Client, DeviceWorker], gate: Gate
) -> None:
    """Tasks that fail, are tried again, secede, run as coroutines, or whose key is released."""
    client, worker = running
    admission, x = admission_of(worker), client.scatter(np.ones(PART, np.uint8))
    failing = client.map(fails, [x] * 3, range(3), pure=False, retries=1)
    seceding = client.map(secedes, [x] * 3, range(3), pure=False)
    later = client.map(coroutine, [x] * 3, range(3), pure=False)
    released = client.submit(at_the_gate, x, 1)
    actor = client.submit(Gate, actor=True)
    wait([*failing, *seceding, *later, actor])  # type: ignore[no-untyped-call]
    assert [each.status for each in failing] == ["error"] * 3
    assert client.gather([*seceding, *later]) == [0, 1, 2] * 2
    wait_for(lambda: gate.entered == 1)
    key = released.key
    del released, failing
    wait_for(lambda: worker.state.tasks[key].state == "cancelled")
    assert list(admission._granted) == [key]
    gate.opened.set()
    wait_for(lambda: admission.ledger.idle and not admission._granted)
    assert admission.ledger.reserved == 0
    assert worker.data.movable_from_host() == worker.data.held_on_host()


def fails(array: np.ndarray, number: int) -> int:
    raise ValueError(number)


def secedes(array: np.ndarray, number: int) -> int:
    secede()
    return number


async def coroutine(array: np.ndarray, number: int) -> int:
    return number


def test_others_are_spilled_before_a_task_waits(running: tuple[Client, DeviceWorker]) -> None:
    client, worker = running
    arrays = [client.scatter(np.full(3 * PART, k, np.uint8)) for k in range(3)]
    assert client.submit(np.copy, arrays[0]).result().sum() == 0
    assert len(worker.data.files) == 1
    assert worker.data.ready(arrays[0].key)
    assert admission_of(worker).ledger.committed <= admission_of(worker).ledger.limit
    assert int(arrays[1].result()[0]) == 1


def test_nothing_is_spilled_that_a_task_reads_which_is_ready_before_those_that_wait(
    running: tuple[Client, DeviceWorker], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = running
    spilled, make_room = [], worker.data.make_room

    def note(*args: Any, **kwargs: Any) -> Any:
        spilled.append(args)
        return make_room(*args, **kwargs)

    monkeypatch.setattr(worker.data, "make_room", note)
    # It is known from now on what others of its kind take.
    client.submit(np.ones, 8 * PART, np.uint8, key="large-1").result()
    wait_for(lambda: not worker.data)
    x, small = client.scatter(np.ones(4 * PART, np.uint8)), client.scatter(np.zeros(1))
    first = client.submit(at_the_gate, small, 0)
    wait_for(lambda: gate.entered == 1)
    large = client.submit(np.ones, 8 * PART, np.uint8, key="large-2")
    admission = admission_of(worker)
    wait_for(lambda: admission.reason == "consumers of earlier results")
    second = client.submit(past_the_gate, x, priority=1)
    wait_for(lambda: len(worker.state.ready) == 1)
    gate.opened.set()
    assert first.result() == 0
    wait_for(lambda: admission.ledger.running == 1 and admission.waiting == 1)
    assert not spilled
    gate.left.set()
    assert (second.result(), large.result().nbytes) == (1, 8 * PART)


def test_task_waits_for_space_on_the_disk_rather_than_exceed_the_limit(
    running: tuple[Client, DeviceWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = running
    admission = admission_of(worker)

    def write(files: SpillFiles, key: object, value: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arrays = [client.scatter(np.full(3 * PART, k, np.uint8)) for k in range(3)]
    with monkeypatch.context() as full:
        full.setattr(SpillFiles, "__setitem__", write)
        future = client.submit(np.copy, arrays[0])
        wait_for(lambda: admission.reason == "space on the disk")
        assert not future.done()
        assert admission.ledger.most <= admission.ledger.limit
    assert future.result().sum() == 0
    assert admission.counters.in_pieces == 0


def test_task_that_cannot_fit_is_refused_where_that_is_asked_for() -> None:
    with (
        dask.config.set({**OWN, "gpusched.memory.strict": True}),
        Cluster(1, 2, processes=False, worker_options={"memory_limit": 10 * PART}) as cluster,
        Client(cluster) as client,
    ):
        x = client.scatter(np.ones(6 * PART, np.uint8))
        # What takes how much is not known before: nothing is refused on a guess.
        assert client.submit(len, x).result() == 6 * PART
        client.submit(np.copy, x, key="copy-1").result()
        with pytest.raises(DoesNotFitError, match=r"needs 11.44 MiB at once.*has 9.06 MiB"):
            client.submit(np.copy, x, key="copy-2").result()
        assert admission_of(next(iter(cluster.workers.values()))).counters.refused == 1


def test_task_that_cannot_fit_runs_alone_otherwise(running: tuple[Client, DeviceWorker]) -> None:
    client, worker = running
    x = client.scatter(np.ones(6 * PART, np.uint8))
    assert client.submit(len, x).result() == 6 * PART
    assert admission_of(worker).counters.in_pieces == 1


def test_task_that_waits_for_others_lets_them_start(
    running: tuple[Client, DeviceWorker],
) -> None:
    client, _ = running
    x = client.scatter(np.ones(4 * PART, np.uint8))

    def outer(array: np.ndarray) -> int:
        from distributed import worker_client

        with worker_client() as inner:
            return int(inner.submit(total, inner.scatter(array[: 3 * PART]), pure=False).result())

    assert client.submit(outer, x).result() == 3 * PART


@pytest.fixture
def two() -> Iterator[tuple[Client, DeviceWorker, DeviceWorker]]:
    """Give a client of two workers in this process, like `running`'s."""
    with (
        dask.config.set(OWN),
        Cluster(2, 2, processes=False, worker_options={"memory_limit": 10 * PART}) as cluster,
        Client(cluster) as client,
    ):
        first, second = cluster.workers.values()
        yield client, first, second


def test_results_are_received_when_there_is_memory_for_them(
    two: tuple[Client, DeviceWorker, DeviceWorker], gate: Gate
) -> None:
    client, here, there = two
    x, y = (
        client.scatter(np.full(4 * PART, k, np.uint8), workers=[worker.address])
        for k, worker in enumerate((here, there))
    )
    running = client.submit(at_the_gate, x, 1, workers=[here.address])
    wait_for(lambda: gate.entered == 1)
    cancelled = client.submit(np.max, y, workers=[here.address])
    admission = admission_of(here)
    wait_for(lambda: admission.reason == "running tasks")
    assert (admission.waiting, admission.waiting_keys) == (1, [])
    assert admission.metrics()["in_flight_bytes"] == 0
    cancelled.cancel()
    wait_for(lambda: admission.waiting == 0)
    wanted = client.submit(np.min, y, workers=[here.address])
    wait_for(lambda: admission.reason == "running tasks")
    assert y.key not in here.data
    gate.opened.set()
    assert (running.result(), wanted.result()) == (1, 1)
    assert admission.ledger.most <= admission.ledger.limit
    wait_for(lambda: admission.ledger.in_flight == 0)


def test_spilled_results_are_read_to_be_sent_when_there_is_memory_for_them(
    two: tuple[Client, DeviceWorker, DeviceWorker], gate: Gate
) -> None:
    client, here, there = two
    x, y = (
        client.scatter(np.full(4 * PART, k, np.uint8), workers=[here.address]) for k in range(2)
    )
    running = client.submit(at_the_gate, x, 1, workers=[here.address])
    wait_for(lambda: gate.entered == 1)
    here.data.make_room(host_bytes=4 * PART).result()
    wanted = client.submit(np.min, y, workers=[there.address])
    admission = admission_of(here)
    wait_for(lambda: admission.reason == "running tasks")
    assert not here.data.ready(y.key)
    gate.opened.set()
    assert (running.result(), wanted.result()) == (1, 1)
    wait_for(lambda: admission.ledger.reserved == 0)
    assert here.data.movable_from_host() == here.data.held_on_host()


def test_others_are_spilled_before_results_are_read_to_be_sent(
    two: tuple[Client, DeviceWorker, DeviceWorker],
) -> None:
    client, here, there = two
    x = client.scatter(np.zeros(4 * PART, np.uint8), workers=[here.address])
    here.data.make_room(host_bytes=4 * PART).result()
    parts = [np.full(3 * PART, k, np.uint8) for k in (1, 2)]
    others = [client.scatter(part, workers=[here.address]) for part in parts]
    assert client.submit(np.max, x, workers=[there.address]).result() == 0
    ledger = admission_of(here).ledger
    assert ledger.most <= ledger.limit
    assert sum(map(here.data.ready, [each.key for each in others])) < 2


def test_tasks_that_read_the_same_spilled_result_run_one_after_the_other(gate: Gate) -> None:
    with (
        dask.config.set({**OWN, "distributed.scheduler.worker-saturation": "inf"}),
        Cluster(1, 1, processes=False, worker_options={"memory_limit": 10 * PART}) as cluster,
        Client(cluster) as client,
    ):
        (worker,) = cluster.workers.values()
        arrays = [client.scatter(np.full(6 * PART, k, np.uint8)) for k in range(2)]
        first = client.submit(at_the_gate, client.scatter(np.zeros(1)), 0)
        wait_for(lambda: gate.entered == 1)
        worker.data.make_room(host_bytes=12 * PART).result()
        turns = [client.submit(total, arrays[k % 2], k, pure=False) for k in range(8)]
        wait_for(lambda: len(worker.state.ready) == 8)
        gate.opened.set()
        assert client.gather([first, *turns]) == [0, *(k % 2 * 6 * PART + k for k in range(8))]
        assert worker.data.metrics()["read_bytes"] == worker.data.files.disk_bytes


def total(array: np.ndarray, more: int = 0) -> int:
    return int(array.sum()) + more


def test_task_that_needs_next_to_nothing_costs_few_calls(
    running: tuple[Client, DeviceWorker],
) -> None:
    client, _ = running
    client.run(begin_counting)
    wait(client.map(at_once, range(100), pure=False))  # type: ignore[no-untyped-call]
    ((everything, within),) = client.run(end_counting).values()
    # Those of heartbeats are among them, which are more on a busy machine.
    assert 0 < within < 90 * 100 < everything


def test_another_name_of_a_result_takes_no_look_at_the_process(
    running: tuple[Client, DeviceWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = running
    x = client.submit(np.ones, 1000)
    wait(x)
    looks = list[None]()
    monkeypatch.setattr(admission_of(worker)._memory, "look", lambda: looks.append(None))
    named = client.get({"name": Alias("name", x.key)}, "name", sync=False)
    assert named.result().sum() == 1000
    assert worker.state.tasks["name"].state == "memory"
    assert looks == []
    assert client.submit(np.negative, x).result().sum() == -1000
    assert len(looks) == 1


def at_once(number: int) -> int:
    return number


def test_without_a_limit_nothing_is_asked() -> None:
    with (
        dask.config.set(OWN),
        Cluster(1, 1, processes=False, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        assert next(iter(cluster.workers.values())).admission is None
        assert client.submit(abs, -1).result() == 1


def most_resident(dask_worker: DeviceWorker) -> int:
    """Return the most bytes that a worker's process has ever had in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    most = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    return max(most, admission_of(dask_worker).most_resident)


def parts(seed: int) -> np.ndarray:
    return np.full(CHUNK, seed, np.uint8)


def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.concatenate([first, second])


CHUNK = 40_000_000
LIMIT = 12 * CHUNK


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.processes
def test_worker_stays_within_its_limit_where_its_threads_together_would_not() -> None:
    """Four threads with two inputs and a result of both: 640 MB, and the process itself."""
    with (
        dask.config.set({"gpusched.memory.admission": True}),
        Cluster(1, 4, gpus=0, memory_limit=LIMIT) as cluster,
        Client(cluster) as client,
    ):
        (before,) = client.run(lambda: os.getpid()).values()
        inputs = client.map(parts, range(16))
        pairs = [client.submit(joined, *pair, pure=False) for pair in pairwise(inputs)]
        sums = client.map(len, pairs)
        assert client.gather(sums) == [2 * CHUNK] * 15
        (after,) = client.run(lambda: os.getpid()).values()
        (most,) = client.run(most_resident).values()
        assert before == after
        assert most <= LIMIT


def summed(chunk: int, chunks: int = 1) -> Any:
    x = da.arange(chunk * chunks, chunks=chunk, dtype="f8")
    return (da.sqrt(x * 2 + 1) * x).sum()


def test_array_program_is_refused_by_a_worker_where_only_that_is_strict() -> None:
    """The task ends in what joins results, whose size is that of all of them."""
    with (
        dask.config.set({**OWN, "gpusched.memory.strict": True}),
        Cluster(1, 1, processes=False, worker_options={"memory_limit": 10 * PART}) as cluster,
        Client(cluster) as client,
        gpusched.enable(),
    ):
        admission = admission_of(next(iter(cluster.workers.values())))
        with dask.config.set({"gpusched.memory.strict": False}):
            with pytest.raises(DoesNotFitError, match=r"finalize.*needs 11.44 MiB at once"):
                client.compute(summed(PART // 2)).result()
            assert admission.counters.refused == 1
            # Others go on.
            assert client.compute(summed(PART // 8)).result() > 0


@pytest.mark.parametrize("short", [False, True])
def test_task_that_surely_does_not_fit_is_refused_where_its_worker_would_end(
    monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    """A worker under a nanny, as far as its admission and the scheduler can tell."""
    monkeypatch.setattr(fitting, "most_survived", lambda scheduler: 10 * PART)
    with (
        dask.config.set(OWN),
        Cluster(1, 1, processes=False, worker_options={"memory_limit": 20 * PART}) as cluster,
        Client(cluster) as client,
        gpusched.enable(),
    ):
        admission = admission_of(next(iter(cluster.workers.values())))
        admission.ledger.hard = 10 * PART
        # dask knows the sizes of all chunks: what is small runs, though its layer has large ones.
        x = da.random.default_rng(0).random(2 * PART, chunks=((3 * PART // 2, PART // 2),))
        if short:
            assert x.blocks[1].mean().compute() < 1
            assert admission.counters.refused == 0
        else:
            with pytest.raises(DoesNotFitError, match=r"needs 11.44 MiB at once.*has 9.54 MiB"):
                client.compute(x.mean()).result()
            assert client.submit(abs, -1).result() == 1


def test_task_is_expected_to_take_what_dask_knows_of_its_chunk() -> None:
    """Tasks without a program: one that makes a chunk, and one that copies a piece of little."""
    with (
        dask.config.set(OWN),
        Cluster(1, 1, processes=False, worker_options={"memory_limit": 20 * PART}) as cluster,
        Client(cluster) as client,
        gpusched.enable(),
    ):
        admission, seen = admission_of(next(iter(cluster.workers.values()))), dict[str, int]()
        start = admission.ledger.start

        def note(key: Any, need: Any) -> None:
            seen[str(key)] = need.extra
            start(key, need)

        admission.ledger.start = note  # type: ignore[method-assign]
        x = da.random.default_rng(0).random(PART, chunks=PART // 2)
        y = da.ones(PART, chunks=PART).rechunk(PART // 2)
        client.gather(client.compute([client.persist(x), client.persist(y)]))
        made = {n for key, n in seen.items() if key.startswith("('random")}
        cut = {n for key, n in seen.items() if "split" in key or "rechunk" in key}
        assert made == {4 * PART} and 4 * PART in cut


@pytest.mark.processes
def test_worker_survives_tasks_that_make_large_chunks_or_refuses_them() -> None:
    """Two threads, and tasks of 192 MB and more of a worker that has 310 MB for tasks."""
    n = 24_000_000
    with (
        dask.config.set({"gpusched.memory.admission": True}),
        Cluster(1, 2, gpus=0, memory_limit=600 * PART) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(1)
        (before,) = client.run(lambda: os.getpid()).values()
        x = da.arange(n, chunks=n, dtype="f8")
        # Called one by one, its functions would leave 576 MB: kernels are waited for.
        assert (da.sqrt(x * 2 + 1) * x).sum().compute() > 0
        # Without a program; two at a time would be 384 MB, beside what the process takes.
        y = da.arange(2 * n, chunks=n, dtype="f8").persist()
        assert [len(chunk) for chunk in client.gather(client.map(np.shape, futures_of(y)))] == [
            1,
            1,
        ]
        del y
        with pytest.raises(DoesNotFitError, match=r"needs 610.35 MiB at once"):
            da.arange(80 * PART, chunks=80 * PART, dtype="f8").persist().compute()
        assert client.submit(abs, -1).result() == 1
        (after,) = client.run(lambda: os.getpid()).values()
        assert before == after
