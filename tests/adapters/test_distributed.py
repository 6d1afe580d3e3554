"""What is known of distributed's servers in this process."""

from __future__ import annotations

from distributed import LocalCluster

from gpusched.roles import has_scheduler


def test_closed_schedulers_schedule_nothing() -> None:
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        scheduler = cluster.scheduler
        assert has_scheduler()
    assert scheduler is not None  # It is not collected, and yet:
    assert not has_scheduler()
