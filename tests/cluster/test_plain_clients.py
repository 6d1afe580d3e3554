"""Clients that know nothing of gpusched, on its schedulers: their graphs are fused there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.optimization import optimize as dask_optimize
from distributed import Client, LocalCluster

import gpusched
from gpusched import Cluster
from gpusched.cluster.plain_clients import PlainClients
from gpusched.graph import hook
from tests.tiers import starts_processes

SETTINGS = {"gpusched.fusion.minimum-elements": 0, "array_optimize": dask_optimize}
"""The last one is what a client has that has never imported gpusched."""


def program() -> Any:
    x = da.arange(1000, chunks=100, dtype="f8")
    return (x + 1) * 2 - x


EXPECTED = (np.arange(1000.0) + 1) * 2 - np.arange(1000.0)


def launches() -> int:
    return gpusched.statistics().launches


@pytest.fixture
def clients(request: pytest.FixtureRequest) -> Iterator[PlainClients]:
    """Give what fuses the graphs of clients, on a cluster whose client is in this process."""
    with Cluster(1, 1, processes=False) as cluster, Client(cluster), dask.config.set(SETTINGS):
        yield cluster.scheduler.plugins[PlainClients.name]


@pytest.mark.usefixtures("clients")
def test_graph_of_a_plain_client_is_fused() -> None:
    before = launches()
    np.testing.assert_array_equal(program().compute(), EXPECTED)
    assert launches() == before + 10


@pytest.mark.usefixtures("clients")
def test_several_results_and_futures() -> None:
    before = launches()
    y = program()
    total, kept = dask.compute(y.sum(), dask.persist(y)[0])
    np.testing.assert_array_equal(kept, EXPECTED)
    assert total == EXPECTED.sum()
    assert launches() > before


@pytest.mark.parametrize("optimise", [None, hook._unfused()])
@pytest.mark.usefixtures("clients")
def test_client_that_has_chosen_is_left_alone(optimise: Any) -> None:
    before = launches()
    with dask.config.set(array_optimize=optimise):
        np.testing.assert_array_equal(program().compute(), EXPECTED)
    with gpusched.disable():
        np.testing.assert_array_equal(program().compute(), EXPECTED)
    assert launches() == before


@pytest.mark.usefixtures("clients")
def test_graph_that_shall_not_be_optimised() -> None:
    before = launches()
    found = program().compute(optimize_graph=False)
    np.testing.assert_array_equal(found, EXPECTED)
    assert launches() == before


def test_worker_of_dask_may_lack_gpusched(clients: PlainClients) -> None:
    (worker,) = clients._scheduler.workers.values()
    before = launches()
    told, worker.extra = worker.extra, {}
    np.testing.assert_array_equal(program().compute(), EXPECTED)
    assert launches() == before
    worker.extra = told


def test_cluster_without_fusion_fuses_for_nobody() -> None:
    before = launches()
    with (
        Cluster(1, 1, processes=False, fuse=False) as cluster,
        Client(cluster),
        dask.config.set(SETTINGS),
    ):
        np.testing.assert_array_equal(program().compute(), EXPECTED)
    assert launches() == before


def test_disabling_works_with_a_scheduler_of_dask() -> None:
    with (
        LocalCluster(1, processes=False, protocol="tcp", dashboard_address=None) as cluster,
        Client(cluster),
        gpusched.disable(),
    ):
        np.testing.assert_array_equal(program().compute(), EXPECTED)


@pytest.fixture(scope="module")
@starts_processes
def cluster() -> Iterator[Cluster]:
    with (
        dask.config.set({"gpusched.fusion.minimum-elements": 0}),
        Cluster(1, 1, gpus=0, memory_limit="1 GiB") as cluster,
    ):
        yield cluster


PROGRAM = """
import sys
import dask.array as da
from distributed import Client

with Client(sys.argv[1]) as client:
    x = da.arange(1000, chunks=100, dtype="f8")
    print(((x + 1) * 2 - x).sum().compute())
    assert "gpusched" not in sys.modules
"""


def test_program_that_never_imports_gpusched(cluster: Cluster) -> None:
    def fused() -> int:
        return gpusched.statistics().launches

    with Client(cluster) as client:
        (before,) = client.run(fused).values()
        command = [sys.executable, "-c", PROGRAM, cluster.scheduler_address]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        assert float(done.stdout) == EXPECTED.sum()
        (after,) = client.run(fused).values()
        assert after > before
