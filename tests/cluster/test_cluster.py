"""Clusters with real processes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client, wait

import gpusched
from gpusched import Cluster
from gpusched.cluster import allocation as module
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_for, wait_gone
from tests.workers.emulated import EmulatedWorker


@pytest.fixture(scope="module")
@starts_processes
def cluster() -> Iterator[Cluster]:
    with Cluster(2, 1, gpus=0, memory_limit="1 GiB") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


def hook() -> object:
    return dask.config.get("array_optimize", None)


def visible() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_workers_are_processes_of_their_own(client: Client) -> None:
    pids = set(client.run(os.getpid).values())
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_workers_get_what_was_asked_for(client: Client) -> None:
    workers = client.sync(client.scheduler.identity)["workers"].values()
    assert [(w["nthreads"], w["memory_limit"]) for w in workers] == [(1, 2**30)] * 2


def test_cpu_workers_see_no_gpu(client: Client) -> None:
    assert set(client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).values()) == {""}


def test_numeric_libraries_do_not_oversubscribe(client: Client) -> None:
    assert set(client.run(lambda: os.environ["OMP_NUM_THREADS"]).values()) == {"1"}


def test_fusion_is_on_here_and_in_the_workers(client: Client) -> None:
    assert hook() is gpusched.graph.optimize
    name = "array_optimize"
    hooks = client.run(lambda: dask.config.get(name).__module__).values()
    assert set(hooks) == {"gpusched.graph.hook"}


@pytest.mark.essential
def test_arrays_are_computed_fused(client: Client) -> None:
    before = client.run(gpusched.statistics)
    x = da.ones(200_000, chunks=50_000)
    assert float(((x + 1) * 2).sum().compute()) == 800_000
    after = client.run(gpusched.statistics)
    assert sum(after[w].fused_tasks - before[w].fused_tasks for w in after) == 4


def test_fusion_ends_with_the_cluster() -> None:
    before = hook()
    with Cluster(processes=False) as cluster:
        assert hook() is gpusched.graph.optimize
        cluster.close()
        assert hook() is before
    with Cluster(processes=False, fuse=False):
        assert hook() is before
    with dask.config.set({"gpusched.fusion.enabled": False}), Cluster(processes=False):
        assert hook() is before


def test_scaling_up_and_down() -> None:
    with Cluster(1, 1, gpus=0, processes=False) as cluster, Client(cluster) as client:
        cluster.scale(3)
        client.wait_for_workers(3, timeout=PATIENCE)
        assert sorted(cluster.worker_spec) == [0, 1, 2]
        cluster.scale(1)
        cluster.sync(cluster._correct_state)
        assert len(client.sync(client.scheduler.identity)["workers"]) == 1


def test_adapting_starts_workers_when_there_is_work() -> None:
    with Cluster(0, 1, gpus=0, processes=False) as cluster, Client(cluster) as client:
        cluster.adapt(minimum=0, maximum=2, interval="20ms")
        assert client.submit(lambda: 7).result(timeout=PATIENCE) == 7


@pytest.mark.processes
def test_workers_on_gpus_see_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # No GPU is touched: what is tested is what each process is told.
    monkeypatch.setattr(module, "visible_devices", lambda: ["3", "5"])
    options = {"worker_class": EmulatedWorker}
    before = visible()
    with (
        Cluster(gpus="all", fuse=False, worker_options=options) as cluster,
        Client(cluster) as client,
    ):
        assert visible() == before
        told = client.run(visible)
        names = {
            address: w["name"]
            for address, w in client.sync(client.scheduler.identity)["workers"].items()
        }
        assert {names[address]: device for address, device in told.items()} == {0: "3", 1: "5"}
        with pytest.raises(ValueError, match="for 2 GPUs there are at most 2 workers"):
            cluster.scale(3)
        assert len(cluster.worker_spec) == 2
        assert cluster.adapt(minimum=2, maximum=9).maximum == 2


@pytest.mark.processes
def test_gpu_and_cpu_workers_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "visible_devices", lambda: ["3", "5"])
    options = {"worker_class": EmulatedWorker}
    with (
        Cluster(gpus="all", cpu_workers=1, worker_options=options) as cluster,
        Client(cluster) as client,
    ):
        workers = client.sync(client.scheduler.identity)["workers"]
        assert {w["name"]: list(w["resources"]) for w in workers.values()} == {
            0: ["GPU"],
            1: ["GPU"],
            "cpu-0": ["CPU"],
        }
        x = da.arange(8, chunks=1)
        with dask.annotate(resources={"GPU": 1}):
            on_gpu = x.map_blocks(where, dtype=object, name="on-gpu")
        with dask.annotate(resources={"CPU": 1}):
            on_cpu = x.map_blocks(where, dtype=object, name="on-cpu")
        settings = {"optimization.fuse.active": False}
        with dask.config.set(settings):
            assert set(on_gpu.compute(optimize_graph=False)) <= {"3", "5"}
            assert set(on_cpu.compute(optimize_graph=False)) == {""}
        cluster.scale(1)
        assert sorted(map(str, cluster.worker_spec)) == ["0", "cpu-0"]
        wait_for(lambda: len(cluster.workers) <= 2)
        with pytest.raises(ValueError, match="cannot adapt"):
            cluster.adapt()


def where(block: np.ndarray) -> np.ndarray:
    return np.array([os.environ["CUDA_VISIBLE_DEVICES"]] * len(block), dtype=object)


def test_cpu_workers_beside_cpu_workers_make_no_sense() -> None:
    with pytest.raises(ValueError, match="cpu_workers=2 is for clusters with GPUs"):
        Cluster(gpus=0, cpu_workers=2)


def test_factory_of_jupyterlabs_extension() -> None:
    # What dask-labextension 7 does: awaits the class it is told, and asks for these.
    async def use() -> None:
        cluster = await Cluster(1, 1, gpus=0, processes=False, asynchronous=True, name="lab")
        assert "Scheduler" in cluster.scheduler_info["type"]
        assert cluster.scheduler_address
        assert isinstance(cluster.dashboard_link, str)
        cluster.scale(2)
        await cluster
        adaptive = cluster.adapt(minimum=2, maximum=3)
        assert (adaptive.minimum, adaptive.maximum) == (2, 3)
        assert "lab" in cluster._repr_html_() or "Cluster" in cluster._repr_html_()
        await cluster.close()

    asyncio.run(use())


def test_worker_that_dies_comes_back(client: Client, cluster: Cluster) -> None:
    pid = next(iter(client.run(os.getpid).values()))
    psutil.Process(pid).kill()

    def replaced() -> bool:
        pids = set(client.run(os.getpid, on_error="ignore").values())
        return len(pids) == 2 and pid not in pids

    wait_for(replaced)
    client.wait_for_workers(2, timeout=PATIENCE)


def test_closing_leaves_no_process() -> None:
    with Cluster(1, 1, gpus=0) as cluster, Client(cluster) as client:
        workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
    wait_gone(workers)
    cluster.close()


def test_closing_now_does_not_wait_for_tasks() -> None:
    cluster = Cluster(1, 1, gpus=0)
    with Client(cluster) as client:
        workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        endless = client.submit(time.sleep, 1000)  # noqa: TID251
        wait_for(lambda: any(client.processing().values()))
        cluster.close_now()
        del endless
    wait_gone(workers)


def test_asynchronous_use() -> None:
    async def use() -> int:
        async with (
            Cluster(1, 1, processes=False, asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            return await client.submit(lambda: 7)

    assert asyncio.run(use()) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_workers": -1}, "cannot be -1: write a whole number"),
        ({"memory_limit": "x"}, "cannot read 'x'"),
    ],
)
def test_bad_arguments_start_nothing(arguments: dict[str, object], message: str) -> None:
    children = set(psutil.Process().children())
    with pytest.raises(ValueError, match=message):
        Cluster(**arguments)
    # Those of tests before this one may end meanwhile.
    assert set(psutil.Process().children()) <= children


def test_gpus_need_processes() -> None:
    with pytest.raises(ValueError, match="takes processes"):
        Cluster(gpus=1, processes=False)


def test_encrypted_connections() -> None:
    pytest.importorskip("cryptography")
    from distributed.security import Security

    with Cluster(1, 1, gpus=0, security=Security.temporary()) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        with Client(cluster) as client:
            assert client.submit(lambda: 7).result() == 7


def test_dashboard_only_where_asked(client: Client) -> None:
    assert not wait([client.submit(int)]).not_done
    with Cluster(0, processes=False, dashboard_address="127.0.0.1:0") as shown:
        assert shown.scheduler.http_server.port > 0
    with Cluster(0, processes=False) as silent:
        assert "dashboard" not in silent.scheduler.services


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"dashboard_address": "no.such.host.invalid"}, "dashboard_address cannot be 'no.such"),
        ({"dashboard_address": "127.0.0.1:x"}, "dashboard_address cannot be '127.0.0.1:x'"),
        ({"dashboard_address": ":99999"}, "dashboard_address cannot be ':99999'"),
        ({"dashboard_address": {}}, "dashboard_address cannot be {}"),
        ({"host": "no.such.host.invalid"}, "host cannot be 'no.such.host.invalid'"),
        ({"port": 80000}, "port cannot be 80000: write a whole number, from 0 to 65535"),
        ({"port": -1}, "port cannot be -1"),
        ({"port": 1.5}, "port cannot be 1.5"),
        ({"pool": "odd"}, "pool odd is none of"),
        ({"pool_size": "much"}, "pool-size cannot be 'much'"),
    ],
)
def test_arguments_that_cannot_be_are_named_before_anything_starts(
    arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Cluster(1, 1, gpus=0, **arguments)


@pytest.mark.processes
def test_dashboard_that_is_only_wanted_is_on_any_free_port() -> None:
    with Cluster(0, gpus=0, dashboard_address=True) as cluster:
        assert int(cluster.dashboard_link.rsplit(":", 1)[1].split("/")[0]) > 1024
