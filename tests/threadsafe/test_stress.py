"""Hundreds of tasks in threads and processes: a library that is not re-entrant is never entered
twice."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client

from gpusched import Cluster, threadsafe
from tests.threadsafe import fragile

pytestmark = pytest.mark.skipif(
    sys.gettrace() is not None or "COVERAGE_PROCESS_CONFIG" in os.environ,
    reason="coverage cannot be measured in threads that start at once",
)

EXCLUSIVE = ["lock(stress)", "one_thread(stress)", "limit(1, stress)"]


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Have threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def use(library: Any, seed: int) -> int:
    """Use everything that the library has, in some order."""
    chance = random.Random(seed)
    with library.open_file(3) as file:
        uses = [
            lambda: library.add(1, seed),
            lambda: list(library.count_to(3)),
            lambda: file.read(1, scale=2),
            lambda: file.size,
            lambda: list(file),
            lambda: file.parts()["rest"].size,
            lambda: file.pair()[0][0],
            lambda: 2 in file,
            lambda: (file + file).size,
            lambda: next(iter(file.parts().items()))[1].size,
        ]
        for _ in range(10):
            chance.choice(uses)()
        try:
            library.fail()
        except library.FragileError:
            return len(file)
    raise AssertionError("no error")


def test_without_a_policy_it_is_entered_twice() -> None:
    """What the others check for does happen: here always, since each waits for the other."""
    state, both = fragile.reset(), threading.Barrier(2)

    def enter() -> None:
        with fragile.Inside():
            both.wait(60)

    threads = [threading.Thread(target=enter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.overlaps == 1


@pytest.mark.parametrize("policy", EXCLUSIVE)
def test_threads(policy: str, together: Any) -> None:
    state = fragile.reset()
    library = threadsafe.wrap(fragile, policy)
    found = together(
        *[lambda i=i: [use(library, 100 * i + j) for j in range(20)] for i in range(12)]
    )
    assert found == [[3] * 20] * 12
    assert state.entries > 1000
    assert (state.overlaps, state.inside) == (0, 0)
    assert (len(state.threads) == 1) == policy.startswith("one_thread")


@pytest.mark.parametrize("policy", ["lock(deletes)", "one_thread(deletes)"])
def test_handles_are_deleted_under_the_policy(policy: str, together: Any) -> None:
    """As C libraries do in a handle's destructor."""
    state = fragile.reset()
    library = threadsafe.wrap(fragile, policy)

    def leave_open() -> None:
        for _ in range(100):
            assert library.Leaky(2).read(1) == 1
            leaky = library.Leaky(2)
            assert leaky.parts()["all"].size == 2
            del leaky
            read = library.Leaky(2).read  # Now only its method keeps the handle.
            assert read(1) == 1
            del read
            library.add(1, 1)

    together(*[leave_open] * 8)
    assert library.add(1, 1) == 2
    assert state.deleted == 2400
    assert (state.overlaps, state.inside) == (0, 0)
    assert (len(state.threads) == 1) == policy.startswith("one_thread")


@pytest.mark.parametrize("policy", ["lock(cycles)", "one_thread(cycles)"])
def test_handles_in_cycles_are_collected_under_the_policy(policy: str, together: Any) -> None:
    """By nobody else, though every thread's allocations begin collections."""
    state = fragile.reset()
    library = threadsafe.wrap(fragile, policy)

    def leave_open() -> None:
        for _ in range(100):
            leaky = library.Leaky(2)
            leaky.itself = leaky
            del leaky
            assert [[] for _ in range(100)]

    before = gc.get_threshold()
    gc.set_threshold(10)
    try:
        together(*[leave_open] * 8)
    finally:
        gc.set_threshold(*before)
    # Comes after all that the policy's thread has still to do.
    assert library.add(1, 1) == 2
    assert 512 <= state.deleted <= 800
    assert (state.overlaps, state.inside) == (0, 0)
    assert (len(state.threads) == 1) == policy.startswith("one_thread")


def test_limit_is_kept(together: Any) -> None:
    state = fragile.reset()
    library = threadsafe.wrap(fragile, "limit(3, stress)")
    together(*[lambda i=i: [use(library, 100 * i + j) for j in range(10)] for i in range(12)])
    assert state.most <= 3


def test_several_locks_in_any_order_end(together: Any) -> None:
    """Each task takes two of five locks; those that would never end are refused, and go on."""
    locks = [threadsafe.lock(f"any {i}") for i in range(5)]
    refused: list[str] = []

    def work(seed: int) -> int:
        chance, done = random.Random(seed), 0
        while done < 100:
            first, second = chance.sample(locks, 2)
            try:
                with first, second:
                    done += 1
            except threadsafe.DeadlockError as error:
                refused.append(str(error))
        return done

    assert together(*[lambda i=i: work(i) for i in range(8)]) == [100] * 8
    counted = threadsafe.statistics()
    assert len(refused) == sum(counted[str(lock)].deadlocks for lock in locks)
    assert all("never end" in text for text in refused)


def work(library: Any, seed: int) -> int:
    return use(library, seed)


def told() -> tuple[int, int, int, int]:
    state = fragile.state
    return state.entries, state.overlaps, state.inside, len(state.threads)


@pytest.mark.parametrize("policy", EXCLUSIVE)
@pytest.mark.processes
def test_tasks_of_workers(policy: str) -> None:
    library = threadsafe.wrap(fragile, policy)
    with Cluster(2, 4, gpus=0) as cluster, Client(cluster) as client:
        first, second = client.scheduler_info(n_workers=-1)["workers"]
        libraries = [library] * 200
        futures = client.map(work, libraries, range(200), workers=[first])
        futures += client.map(work, libraries, range(200, 400), workers=[second])
        found = client.gather(futures)
        states = client.run(told)
    assert found == [3] * 400
    assert len(states) == 2
    for entries, overlaps, inside, threads in states.values():
        assert entries > 500
        assert (overlaps, inside) == (0, 0)
        assert (threads == 1) == policy.startswith("one_thread")
