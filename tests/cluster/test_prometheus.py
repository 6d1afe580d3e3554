"""The scheduler's /metrics page has what its workers reported."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from urllib.request import urlopen

import dask.array as da
import pytest
from distributed import Client, LocalCluster
from distributed.http.scheduler.prometheus.core import COLLECTORS
from prometheus_client.parser import text_string_to_metric_families

import gpusched
from gpusched.cluster import prometheus
from gpusched.store.statistics import statistics
from gpusched.workers import metrics
from gpusched.workers.metrics import METRICS
from tests.waiting import PATIENCE

LAUNCHES = "gpusched_scheduler_kernel_launches_total"


def scrape(cluster: LocalCluster) -> dict[str, Any]:
    """Return the samples of the scheduler's page, in lists by name."""
    port = cluster.scheduler.http_server.port
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name, [])
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def fused_run() -> None:
    x = da.ones(100_000, chunks=50_000)
    with gpusched.enable():
        assert float(((x + 1) * 2).sum().compute()) == 400_000


def tell(dask_worker: Any) -> None:
    metrics.register(dask_worker)


async def beat(dask_worker: Any) -> None:
    await dask_worker.heartbeat()


@pytest.mark.processes
def test_page_has_every_worker_process() -> None:
    assert prometheus.register()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        client.run(tell)
        fused_run()
        client.run(beat)
        counted = client.run(statistics)
        page = scrape(cluster)
        names = {ws.address: str(ws.name) for ws in cluster.scheduler.workers.values()}
    shown = {sample.labels["worker"]: sample.value for sample in page[LAUNCHES]}
    assert shown == {names[address]: counts.launches for address, counts in counted.items()}
    assert sum(shown.values()) > 0
    assert all(sample.labels["uuid"] == "" for sample in page[LAUNCHES])
    for metric in METRICS:
        assert f"gpusched_scheduler_{metric.name.removesuffix('_total')}" in page
    assert page["dask_scheduler_workers"]


def test_registering_again_shows_nothing_twice() -> None:
    for _ in range(3):
        assert prometheus.register()
    assert COLLECTORS.count(prometheus.WorkersCollector) == 1
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        metrics.register(cluster.workers[0])
        cluster.sync(cluster.workers[0].heartbeat)
        assert len(scrape(cluster)[LAUNCHES]) == 1


def test_page_is_that_of_the_present_scheduler() -> None:
    prometheus.register()
    for names in ({"a"}, {"b", "c"}):
        with LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster:
            specification = {"cls": cluster.new_spec["cls"], "options": {}}
            cluster.worker_spec = dict.fromkeys(names, specification)
            cluster.sync(cluster._correct_state)
            for worker in cluster.workers.values():
                metrics.register(worker)
                cluster.sync(worker.heartbeat)
            assert {sample.labels["worker"] for sample in scrape(cluster)[LAUNCHES]} == names


def test_worker_that_tells_nothing_is_left_out() -> None:
    prometheus.register()
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        assert LAUNCHES not in scrape(cluster)


@pytest.mark.parametrize("first", ["register", "scrape"])
@pytest.mark.processes
def test_page_may_have_been_asked_for_before(first: str) -> None:
    steps = ["assert prometheus.register()", "scrape()"]
    code = (
        "from urllib.request import urlopen\n"
        "from distributed import LocalCluster\n"
        "from gpusched.cluster import prometheus\n"
        "from gpusched.workers import metrics\n"
        "def scrape():\n"
        "    port = cluster.scheduler.http_server.port\n"
        "    with urlopen(f'http://127.0.0.1:{port}/metrics', timeout=30) as answer:\n"
        "        return answer.read().decode()\n"
        "with LocalCluster(n_workers=1, processes=False, dashboard_address='127.0.0.1:0',\n"
        "                  worker_dashboard_address='127.0.0.1:0') as cluster:\n"
        f"    {'; '.join(sorted(steps, key=lambda step: first not in step))}\n"
        "    metrics.register(cluster.workers[0])\n"
        "    cluster.sync(cluster.workers[0].heartbeat)\n"
        "    assert 'gpusched_scheduler_kernel_launches_total{' in scrape()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
