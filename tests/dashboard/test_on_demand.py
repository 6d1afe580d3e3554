"""Clusters have a dashboard that starts when somebody looks, and link to it."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import dask
import pytest
from bokeh.server.tornado import BokehTornado

from gpusched import Cluster
from gpusched.cluster.certificates import create, load
from tests.tiers import starts_processes


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
    return content.decode()


@pytest.fixture
@starts_processes
def cluster() -> Iterator[Cluster]:
    with Cluster(0, gpus=0) as cluster:
        yield cluster


def running(cluster: Cluster) -> int:
    """Count the dashboards that a scheduler has started."""
    assert cluster.scheduler is not None
    applications = cluster.scheduler.http_application.applications
    return sum(isinstance(each, BokehTornado) for each in applications)


def test_first_request_starts_it(cluster: Cluster) -> None:
    link = cluster.dashboard_link
    assert link.startswith("http://127.0.0.1:")
    root, _, page = link.rpartition("/")
    assert page == "gpusched"
    assert read(f"{root}/health") == "ok"
    assert running(cluster) == 0
    with ThreadPoolExecutor(3) as pool:
        pages = list(pool.map(read, [f"{root}/status", link, link]))
    for page in pages:
        assert re.search(r'href="[^"]*gpusched"', page), page
    assert running(cluster) == 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read(f"{root}/no-such-page")


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("/status", "./status"),
        ("/a/b?c=/d", "./b?c=/d"),
        ("/", "./"),
        ("//example.org/", "./"),
        ("//example.org", "./example.org"),
    ],
)
@pytest.mark.processes
def test_first_request_is_sent_to_the_same_place(cluster: Cluster, asked: str, sent: str) -> None:
    """And never to another host, which ``//host`` names, nor out of where a proxy has it."""
    address = urllib.parse.urlsplit(cluster.dashboard_link)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    with closing(connection):
        connection.request("GET", asked)
        answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (302, sent)


@pytest.mark.processes
@pytest.mark.parametrize("address", [False, "127.0.0.1:0"])
def test_address_that_is_given_wins(address: str | bool) -> None:
    setting = {"gpusched.cluster.dashboard-address": address}
    with dask.config.set(setting), Cluster(0, gpus=0) as cluster:
        assert bool(cluster.dashboard_link) == bool(address)
        assert running(cluster) == bool(address)


def test_none_in_one_process_and_with_certificates(tmp_path: Path) -> None:
    with Cluster(1, 1, processes=False) as cluster:
        assert cluster.dashboard_link == ""
    create(tmp_path / "tls")
    with Cluster(0, gpus=0, security=load(tmp_path / "tls")) as cluster:
        assert cluster.dashboard_link == ""


@pytest.mark.processes
def test_bokeh_is_not_imported_by_a_cluster() -> None:
    code = (
        "import sys, gpusched\n"
        "with gpusched.Cluster(0, gpus=0) as cluster:\n"
        "    print(cluster.dashboard_link, 'bokeh' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    link, loaded = done.stdout.split()
    assert link.endswith("/gpusched")
    assert loaded == "False"
