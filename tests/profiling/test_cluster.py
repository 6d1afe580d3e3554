"""Profiles of clusters: real worker processes, workers that come and go, clients that do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

import gpusched
from gpusched import events
from gpusched.profiling import Profile
from tests.tiers import starts_processes
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def nothing_active() -> Iterator[None]:
    yield
    assert events.active == ()


@pytest.fixture(scope="module")
@starts_processes
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gpusched.Cluster]:
    cache = str(tmp_path_factory.mktemp("cache"))
    settings = {"gpusched.fusion.cache-directory": cache}
    with dask.config.set(settings), gpusched.Cluster(2, 1, gpus=0) as started:
        yield started


@pytest.fixture
def client(cluster: gpusched.Cluster) -> Iterator[Client]:
    with Client(cluster) as found:
        yield found


def program(client: Client) -> tuple[da.Array, int]:
    """Return a program whose halves meet, and its number of chunks."""
    workers = sorted(client.sync(client.scheduler.identity)["workers"])
    halves = []
    for k, worker in enumerate(workers[:2]):
        with dask.annotate(workers=[worker], allow_other_workers=False):
            made = da.from_array(np.full((40_000, 20), float(k + 1)), chunks=(10_000, 20))
            halves.append(client.persist(made, workers=[worker]))
    wait(halves)
    return ((halves[0] - 0.5) * halves[1] + 1).sum(), 4  # the line


def kinds(found: Profile) -> Counter[str]:
    return Counter(span.kind for span in found.timeline.spans)


def processes_of(found: Profile, kind: str) -> set[str]:
    lanes, processes = found.timeline.lanes, found.timeline.processes
    return {
        processes[lanes[span.lane].process].name
        for span in found.timeline.spans
        if span.kind == kind
    }


def plugins(dask_scheduler: Any) -> list[str]:
    names = [*dask_scheduler.plugins, *dask_scheduler.worker_plugins]
    return [name for name in names if name.startswith("gpusched-profile")]


def workers_plugins(dask_worker: Any) -> tuple[list[str], int]:
    names = [name for name in dask_worker.plugins if name.startswith("gpusched-profile")]
    return names, len(events.active)


def assert_nothing_records(client: Client) -> None:
    assert client.run_on_scheduler(plugins) == []
    assert set(map(str, client.run(workers_plugins).values())) <= {"([], 0)"}


def test_everything_that_ran_on_the_workers_is_there(client: Client) -> None:
    x, chunks = program(client)
    with gpusched.enable(), gpusched.profile() as found:
        assert float(x.compute()) == 4 * 10_000 * 20 * 2.0
    (row,) = found.kernels
    assert row.launches == chunks
    assert [place.text for place in row.places][-1].endswith("# the line")
    assert row.limit is not None
    assert kinds(found)["task"] >= chunks
    assert processes_of(found, "task") <= {"worker 0", "worker 1"}
    assert kinds(found)["graph"] and kinds(found)["scheduling"] and kinds(found)["transfer"]
    assert len(found.timeline.queued) >= chunks
    assert any(name.endswith("deserialize") for name in found.distributed)
    assert found.notes == []
    assert {process.accuracy for process in found.timeline.processes} == {0.0}
    names = [process.name for process in found.timeline.processes]
    assert names == ["client, scheduler", "worker 0", "worker 1"]
    assert_nothing_records(client)


def test_spans_of_workers_are_within_the_profile(client: Client) -> None:
    x, _ = program(client)
    with gpusched.enable(), gpusched.profile() as found:
        x.compute()
    for span in found.timeline.spans:
        # What goes on as it begins or ends is there, too.
        assert span.start <= found.seconds and span.end >= 0
        assert span.kind != "task" or 0 <= span.start <= span.end <= found.seconds
    first = min(s.start for s in found.timeline.spans if s.kind == "task")
    assert all(s.end <= first for s in found.timeline.spans if s.kind == "graph")


def test_transfer_tells_bytes_and_the_other_side(client: Client) -> None:
    x, _ = program(client)
    with gpusched.enable(), gpusched.profile() as found:
        x.compute()
    received = [s for s in found.timeline.spans if (s.kind, s.name) == ("transfer", "receive")]
    assert sum(span.nbytes for span in received) >= 10_000 * 20 * 8
    addresses = set(client.sync(client.scheduler.identity)["workers"])
    assert {span.detail.split()[-1] for span in received} <= addresses


def test_two_profiles_at_once_and_a_second_client(cluster: gpusched.Cluster) -> None:
    with Client(cluster) as first, Client(cluster, set_as_default=False) as second:
        x, chunks = program(first)
        with gpusched.enable(), gpusched.profile(first) as one, gpusched.profile(second) as two:
            x.compute()
        for found in (one, two):
            assert [row.launches for row in found.kernels] == [chunks]
            assert kinds(found)["task"] == kinds(one)["task"]
        assert_nothing_records(first)


def test_profile_without_the_client(client: Client) -> None:
    with gpusched.profile(client=None) as found:
        client.submit(abs, -1).result()
    assert kinds(found)["task"] == 0
    assert [process.name for process in found.timeline.processes] == ["client"]


def test_failed_task_is_there_and_one_that_is_tried_again(client: Client, tmp_path: Path) -> None:
    def once(path: str) -> int:
        if not os.path.exists(path):
            open(path, "w").close()
            raise OSError("the first time")
        return 7

    with gpusched.profile() as found:
        assert client.submit(once, str(tmp_path / "x"), retries=2).result() == 7
    assert sum(span.name == "once" for span in found.timeline.spans) == 2


def test_async_profile(cluster: gpusched.Cluster) -> None:
    async def main() -> Profile:
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            with pytest.raises(RuntimeError, match="async with"), gpusched.profile(client):
                pass
            async with gpusched.profile(client) as found:
                assert await client.submit(abs, -3) == 3
            return found

    assert kinds(asyncio.run(main()))["task"] == 1


def test_in_one_process_nothing_is_there_twice() -> None:
    with gpusched.local() as client:
        x = da.from_array(np.ones((40_000, 20)), chunks=(10_000, 20))
        gpusched.reset_statistics()
        with gpusched.profile(client) as found:
            ((x - 0.5) * 3 + x).sum().compute()
        assert found.kernels[0].launches == gpusched.statistics().launches == 4
        keys = [span.task for span in found.timeline.spans if span.kind == "task"]
        assert len(keys) == len(set(keys))
    assert len(found.timeline.processes) == 1


@pytest.mark.processes
def test_distributeds_own_workers() -> None:
    with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as own, Client(own):
        x = da.ones((40_000, 20), chunks=(10_000, 20))
        with gpusched.enable(), gpusched.profile() as found:
            ((x - 0.5) * 3 + x).sum().compute()
    assert found.kernels[0].launches == 4
    assert kinds(found)["scheduling"]


@pytest.mark.processes
def test_workers_that_die_and_those_that_join_are_told() -> None:
    with gpusched.Cluster(2, 1, gpus=0) as own, Client(own) as client:
        with gpusched.profile() as found:
            pids = client.run(os.getpid)
            victim, pid = next(iter(pids.items()))
            os.kill(pid, signal.SIGKILL)
            # Its nanny starts another one.
            client.run_on_scheduler(has_other_workers, set(pids), 2)
            assert client.submit(abs, -5).result() == 5
        changes = [what for _, what in found.changes]
        assert f"worker {victim} left" in changes
        assert any(what.endswith("joined") for what in changes)
        assert f"worker {victim} left before the profile ended: its events are lost" in found.notes
        assert len(processes_of(found, "task")) == 1
        assert_nothing_records(client)


async def has_other_workers(before: set[str], count: int, dask_scheduler: Any) -> None:
    async with asyncio.timeout(60):
        while len(dask_scheduler.workers) < count or before <= set(dask_scheduler.workers):
            await asyncio.sleep(0.01)


def test_client_closed_during_the_profile() -> None:
    with gpusched.Cluster(1, 1, gpus=0) as own:
        client = Client(own)
        with gpusched.profile(client) as found:
            client.submit(abs, -1).result()
            client.close()
        assert "closed before the profile ended" in found.notes[0]
        assert found.timeline.processes
        with Client(own) as other:
            other.run(workers_without_profiles)
            assert_nothing_records(other)


def test_closed_client_is_refused(cluster: gpusched.Cluster) -> None:
    client = Client(cluster, set_as_default=False)
    client.close()
    with pytest.raises(RuntimeError, match="the client is closed"), gpusched.profile(client):
        pass


@pytest.mark.parametrize("client", [5, "tcp://127.0.0.1:8786"])
def test_something_else_than_a_client_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a distributed\.Client, or None"):
        gpusched.profile(client)


def test_client_made_during_the_profile(cluster: gpusched.Cluster) -> None:
    with gpusched.profile() as found, Client(cluster) as client:
        pass
    assert found.notes == []
    with gpusched.profile() as found:
        client = Client(cluster)
    client.close()
    assert "make it before gpusched.profile() begins" in found.notes[0]


def test_profile_of_a_client_that_died_ends(client: Client, tmp_path: Path) -> None:
    code = f"""
import os
from distributed import Client
import gpusched
client = Client({client.scheduler.address!r})
gpusched.profile(client).__enter__()
print("recording", flush=True)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE, capture_output=True)

    async def ended(dask_scheduler: Any) -> None:
        async with asyncio.timeout(60):
            while [n for n in dask_scheduler.plugins if n.startswith("gpusched-profile")]:
                await asyncio.sleep(0.01)

    client.run_on_scheduler(ended)
    client.run(workers_without_profiles)
    assert_nothing_records(client)


async def workers_without_profiles(dask_worker: Any) -> None:
    async with asyncio.timeout(60):
        while [n for n in dask_worker.plugins if n.startswith("gpusched-profile")]:
            await asyncio.sleep(0.01)


def test_spilling_is_there(tmp_path: Path) -> None:
    settings = {"distributed.worker.memory.target": 0.02, "distributed.worker.memory.spill": False,
                "temporary-directory": str(tmp_path)}  # fmt: skip
    with (
        dask.config.set(settings),
        gpusched.Cluster(1, 1, gpus=0, memory_limit="1 GB") as own,
        Client(own) as client,
        gpusched.profile() as found,
    ):
        futures = client.map(np.full, [1_000_000] * 8, range(8))
        wait(futures)
        assert client.gather(client.map(np.sum, futures)) == [k * 1e6 for k in range(8)]
    assert kinds(found)["spill"] and kinds(found)["unspill"]
    spilled = [span for span in found.timeline.spans if span.kind == "spill"]
    assert max(span.nbytes for span in spilled) == 8_000_000
    assert all(span.task for span in spilled)
