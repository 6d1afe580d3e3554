"""What is known of distributed's servers in this process."""

from __future__ import annotations

import dask
import pytest
from distributed import Client, LocalCluster, Scheduler

from gpusched.roles import cluster_threads, has_scheduler


def test_closed_schedulers_schedule_nothing() -> None:
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        scheduler = cluster.scheduler
        assert has_scheduler()
    assert scheduler is not None  # It is not collected, and yet:
    assert not has_scheduler()


def test_a_client_optimises_for_the_threads_of_its_cluster() -> None:
    with (
        LocalCluster(1, 3, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        client.wait_for_workers(1)
        patch.setattr(Scheduler, "_instances", [])  # As if it were scheduled elsewhere.
        assert cluster_threads() == 3
        with dask.config.set(scheduler="threads"):
            assert cluster_threads() == 0, "the client computes nothing"
