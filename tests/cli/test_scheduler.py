"""``gpusched run --scheduler``: a scheduler that runs already."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster

from gpusched import Cluster
from tests.tiers import starts_processes

from .conftest import Runner

SCRIPT = """
import dask.array as da, distributed
x = da.arange(40_000, chunks=10_000).astype("f8")
print(float((x * 2 + 1).sum().compute()))
print(distributed.default_client().scheduler.address)
"""


@pytest.fixture(scope="module")
@starts_processes
def cluster() -> Iterator[Cluster]:
    with Cluster(1, 1, gpus=0, fuse=False) as cluster:
        yield cluster


def test_running_scheduler_is_used_and_kept(gpusched_run: Runner, cluster: Cluster) -> None:
    script = gpusched_run.script(SCRIPT)
    for _ in range(2):
        done = gpusched_run("--scheduler", cluster.scheduler_address, script)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["1600000000.0", cluster.scheduler_address]
        # Counted on the worker, from the run's beginning rather than the worker's.
        assert "4 with array functions, 4 of them fused" in done.stderr


def test_fusion_can_be_left_off(gpusched_run: Runner, cluster: Cluster) -> None:
    script = gpusched_run.script(SCRIPT)
    done = gpusched_run("--no-fuse", "--scheduler", cluster.scheduler_address, script)
    assert done.stdout.splitlines()[0] == "1600000000.0"
    assert "fusion    off" in done.stderr


def test_address_of_a_worker_is_refused(gpusched_run: Runner, cluster: Cluster) -> None:
    worker = cluster.workers[0].worker_address
    done = gpusched_run("--scheduler", worker, gpusched_run.script(SCRIPT))
    assert done.returncode == 1
    assert f"at {worker} there is a worker, not a scheduler" in done.stderr
    assert done.stdout == ""


def test_workers_without_gpusched_are_named(gpusched_run: Runner) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as bare,
        Client(bare) as client,
    ):
        client.run(lambda: __import__("sys").modules.update(gpusched=None))
        done = gpusched_run("--scheduler", bare.scheduler_address, gpusched_run.script(SCRIPT))
        assert done.returncode == 1
        assert "cannot import gpusched" in done.stderr
        assert "--no-fuse" in done.stderr
        assert done.stderr.count("Error: ") == 1
        done = gpusched_run(
            "--no-fuse", "--scheduler", bare.scheduler_address, gpusched_run.script(SCRIPT)
        )
        assert done.stdout.splitlines()[0] == "1600000000.0", done.stderr
