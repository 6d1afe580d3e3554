"""Programs on a cluster: each worker gets each of them once, and no task fails for want of one."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, Worker, wait

import gpusched
from gpusched import Cluster
from gpusched.cluster.programs import Programs, Served
from gpusched.graph.programs import program, program_tokens
from gpusched.graph.programs.program import Program
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import statistics
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_for

CHUNKS = 40
# A worker that is slow to begin must not lose all its tasks to the others.
SETTINGS = {"gpusched.fusion.minimum-elements": 0, "distributed.scheduler.work-stealing": False}


@pytest.fixture(scope="module")
@starts_processes
def cluster() -> Iterator[Cluster]:
    with dask.config.set(SETTINGS), Cluster(2, 1, gpus=0, memory_limit="1 GiB") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.run_on_scheduler(forget_served)
        yield client


def forget_served(dask_scheduler: Any) -> None:
    """Let a test see its own programs only."""
    dask_scheduler.plugins["gpusched-programs"]._served.clear()


@contextlib.contextmanager
def plain_cluster(workers: int = 2) -> Iterator[Client]:
    """Run distributed's own scheduler and workers in this process, with sockets between them."""
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            workers, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        gpusched.enable(),
    ):
        yield client


def ten_operations(seed: float, chunks: int = CHUNKS) -> tuple[da.Array, np.ndarray]:
    """Return a chain that no other test has, and what it must give."""
    values = np.linspace(0.5, 2, chunks * 100)
    x: Any = da.from_array(values, chunks=100)
    for _ in range(5):
        x, values = da.sqrt(x * seed), np.sqrt(values * seed)
    return x, values


def served(dask_scheduler: Any) -> list[tuple[int, dict[str, int]]]:
    """Return, for each program that the scheduler serves, the bytes a task takes and who has it."""
    found = dask_scheduler.plugins["gpusched-programs"]._served.values()
    return [(len(pickle.dumps(one)), dict(one.given)) for one in found]


def kinds(dask_scheduler: Any) -> set[str]:
    return {type(getattr(t.run_spec, "func", None)).__name__ for t in dask_scheduler.tasks.values()}


def test_each_worker_gets_a_program_once(client: Client) -> None:
    x, expected = ten_operations(1.25)
    held = client.persist(x)
    wait(held)
    ((size, given),) = client.run_on_scheduler(served)
    assert size < 150
    assert set(given.values()) == {1}
    assert set(given) == set(client.sync(client.scheduler.identity)["workers"])
    np.testing.assert_array_equal(held.compute(), expected)


def test_a_program_is_released_with_its_graph(client: Client) -> None:
    x, expected = ten_operations(1.5)
    np.testing.assert_array_equal(x.compute(), expected)

    assert client.run_on_scheduler(left)

    def released() -> bool:
        client.gather(client.map(abs, range(8), pure=False))
        client.run_on_scheduler(forget_messages)
        return not client.run_on_scheduler(left)

    wait_for(released)


def note_left() -> None:
    """Let a worker note how many tasks it takes for left, and compile nothing."""
    from gpusched.store import worthwhile

    worthwhile.noted = []  # type: ignore[attr-defined]

    def gain(handles: Any, seconds: float, left: int, *rest: Any) -> float:
        worthwhile.noted.append(left)  # type: ignore[attr-defined]
        return -1.0

    worthwhile.gain = gain


def noted_left() -> list[int]:
    from gpusched.store import worthwhile

    return list(worthwhile.noted)  # type: ignore[attr-defined]


@pytest.mark.processes
@pytest.mark.parametrize("of_dask", [False, True], ids=["gpusched", "dask"])
def test_workers_know_how_much_of_a_graph_is_left(of_dask: bool, tmp_path: Path) -> None:
    own = {"compile": "background", "cache-directory": str(tmp_path)}
    settings = SETTINGS | {f"gpusched.fusion.{key}": value for key, value in own.items()}
    options: dict[str, Any] = {"threads_per_worker": 1, "memory_limit": "1 GiB"}
    with (
        dask.config.set(settings),
        LocalCluster(2, dashboard_address=None, **options) if of_dask
        else Cluster(2, gpus=0, **options) as cluster,
        Client(cluster) as client,
        gpusched.enable(),
    ):  # fmt: skip
        client.run(note_left)
        for seed in (1.625, 1.625, 1.875):
            check_left(client, seed)


def check_left(client: Client, seed: float) -> None:
    """Compute a graph, and compare what workers have taken for left with what they have run."""
    client.run(note_left)
    x, expected = ten_operations(seed)
    np.testing.assert_array_equal(x.compute(), expected)
    found = client.run(noted_left)
    assert sum(map(len, found.values())) == CHUNKS
    for left in found.values():
        assert left == list(range(CHUNKS - 1, CHUNKS - 1 - len(left), -1))


def forget_messages(dask_scheduler: Any) -> None:
    """Drop distributed's record of the last thousand messages to each worker."""
    for comm in dask_scheduler.stream_comms.values():
        comm.recent_message_log.clear()


def left(dask_scheduler: Any) -> list[str]:
    gc.collect()
    return list(dask_scheduler.plugins["gpusched-programs"]._served)


def test_a_program_that_is_computed_again_is_not_sent_again(client: Client) -> None:
    before = client.run(statistics)
    x, expected = ten_operations(1.75)
    for _ in range(3):
        np.testing.assert_array_equal(x.compute(), expected)
    after = client.run(statistics)
    assert [after[w].programs_received - before[w].programs_received for w in after] == [1, 1]


def test_clients_share_a_program(client: Client, cluster: Cluster) -> None:
    x, expected = ten_operations(2.25)
    with Client(cluster) as other:
        first, second = client.persist(x), other.persist(x + 0)
        wait([first, second])
        assert all(set(given.values()) == {1} for _, given in client.run_on_scheduler(served))
        np.testing.assert_array_equal(first.compute(), expected)


def test_graphs_that_the_client_has_optimised_are_served_too(client: Client) -> None:
    x, expected = ten_operations(2.5)
    (optimised,) = dask.optimize(x)
    held = client.persist(optimised)
    wait(held)
    assert [set(given.values()) for _, given in client.run_on_scheduler(served)] == [{1}]
    np.testing.assert_array_equal(held.compute(), expected)


@pytest.mark.processes
def test_a_killed_worker_s_successor_asks_again() -> None:
    with (
        dask.config.set(SETTINGS),
        Cluster(1, 1, gpus=0, memory_limit="1 GiB") as cluster,
        Client(cluster) as client,
    ):
        x, expected = ten_operations(2.75)
        held = client.persist(x)
        wait(held)
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        np.testing.assert_array_equal(held.compute(), expected)
        ((_, given),) = client.run_on_scheduler(served)
        assert sorted(given.values()) == [1, 1]
        client.restart()
        np.testing.assert_array_equal(x.compute(), expected)
        (counted,) = client.run(statistics).values()
        assert (counted.programs_received, counted.programs_missing) == (1, 0)


@pytest.mark.processes
def test_a_worker_that_joins_asks_for_itself() -> None:
    with (
        dask.config.set(SETTINGS),
        Cluster(1, 1, gpus=0, processes=True, memory_limit="1 GiB") as cluster,
        Client(cluster) as client,
    ):
        first = client.persist(ten_operations(3.25)[0])
        wait(first)
        cluster.scale(2)
        client.wait_for_workers(2, timeout=PATIENCE)
        (old,) = {w for given in client.run_on_scheduler(served) for w in given[1]}
        (new,) = set(client.sync(client.scheduler.identity)["workers"]) - {old}
        y, expected_y = ten_operations(3.25, chunks=6)
        with dask.annotate(workers=[new], allow_other_workers=False):
            result = client.compute(y + 0, optimize_graph=True)
        np.testing.assert_array_equal(result.result(timeout=PATIENCE), expected_y)
        assert client.run(statistics)[new].programs_received >= 1


class TestPlainScheduler:
    """distributed's own."""

    def test_sends_programs_whole(self) -> None:
        before = statistics()
        with plain_cluster() as client:
            x, expected = ten_operations(3.5)
            held = client.persist(x)
            np.testing.assert_array_equal(held.compute(), expected)
            assert "Program" in client.run_on_scheduler(kinds)
        assert statistics().programs_received == before.programs_received

    def test_serves_programs_once_a_client_says_so(self) -> None:
        with plain_cluster() as client:
            client.register_plugin(Programs())
            x, expected = ten_operations(3.75)
            held = client.persist(x)
            np.testing.assert_array_equal(held.compute(), expected)
            ((_, given),) = client.run_on_scheduler(served)
            # The workers share this process, so one of them asks for both.
            assert sum(given.values()) == 1

    @pytest.mark.parametrize("failure", ["the scheduler forgot it", "no connection"])
    def test_a_payload_that_cannot_be_had_comes_with_the_task(
        self, failure: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = statistics()
        plugin = Programs()

        async def refused(*args: Any, **kwargs: Any) -> None:
            raise OSError("refused")

        with plain_cluster() as client:
            client.register_plugin(plugin)
            if failure == "no connection":
                for worker in Worker._instances:
                    monkeypatch.setattr(
                        worker.scheduler, program_tokens.OPERATION, refused, raising=False
                    )
            else:
                client.run_on_scheduler(_forget)
            x, expected = ten_operations(4.25 if failure == "no connection" else 4.5)
            np.testing.assert_array_equal(x.compute(), expected)
        after = statistics()
        assert after.programs_received == before.programs_received
        # Tasks that were on their way as the first one came back may miss it too.
        assert 1 <= after.programs_missing - before.programs_missing <= 2 * CHUNKS

    def test_a_program_that_never_comes_is_an_error(self) -> None:
        with plain_cluster() as client:
            client.register_plugin(Programs())
            client.run_on_scheduler(_lose)
            x, _ = ten_operations(5.25)
            with pytest.raises(program_tokens.UnavailableError, match=r"4 times.*Compute it again"):
                x.compute()

    def test_an_evicted_program_is_asked_for_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with plain_cluster(1) as client:
            client.register_plugin(Programs())
            x, expected = ten_operations(4.75)
            held = client.persist(x)
            wait(held)
            program._recent.clear()
            program._restored.clear()
            more = client.persist(held.map_blocks(np.negative) * 2 + 1)
            np.testing.assert_array_equal(more.compute(), expected * -2 + 1)


def _lose(dask_scheduler: Any) -> None:
    _forget(dask_scheduler)
    dask_scheduler.stream_handlers[program_tokens.EMBED] = lambda token, worker: None


def _forget(dask_scheduler: Any) -> None:
    dask_scheduler.handlers[program_tokens.OPERATION] = lambda token, worker: None


def test_served_programs_still_run_where_they_are() -> None:
    one = Program((), 1)
    stand_in = Served(one, *one.payload())
    assert stand_in.__name__ == one.__name__
    assert repr(stand_in) == repr(one)
    assert stand_in.__dask_tokenize__() == one.__dask_tokenize__()
    assert stand_in(3) == one(3) == 3


def test_what_is_served_stays_as_it_was_when_the_graph_came() -> None:
    factor = 2.0
    step = ProgramStep(lambda block: np.sqrt(block) * factor, (Register(0),), {}, recorded=True)
    made = Program((step,), 1)
    one = Served(made, *made.payload())
    messages_of_it, whole = pickle.dumps(one), one.payload
    factor = 7.0
    assert made.payload()[0] != one.token
    assert (pickle.dumps(one), one.payload) == (messages_of_it, whole)
    one.embedded = True
    assert pickle.loads(pickle.dumps(one)).payload() == (one.token, whole)
