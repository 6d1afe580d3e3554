"""The pages as a scheduler serves them: over HTTP, and through bokeh's own sessions."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bokeh.client import ClientSession, pull_session
from bokeh.document import Document
from bokeh.models import ColumnDataSource
from distributed import Client

import gpusched
from gpusched import events
from gpusched.dashboard import observer
from gpusched.dashboard.components.navigation import TITLES
from gpusched.dashboard.observer import observer_of
from gpusched.dashboard.pages import APPLICATIONS
from tests.dashboard.conftest import Site, program, running, worker
from tests.waiting import PATIENCE, address_in, wait_for


def get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


@pytest.fixture
def pulled(site: Site) -> Iterator[Callable[[str], ClientSession]]:
    """Give what opens pages as a browser does; closes them at the end."""
    sessions: list[ClientSession] = []

    def pull(address: str) -> ClientSession:
        sessions.append(pull_session(url=f"{site.url}/{address}"))
        return sessions[-1]

    yield pull
    for session in sessions:
        session.close()


def now(session: ClientSession) -> Document:
    """Return a page's document as it is now: a session does not hear of all that changes."""
    address = session._connection.url.replace("ws:", "http:").removesuffix("/ws")
    again = pull_session(session_id=session.id, url=address)
    again.close()
    return again.document


def columns(session: ClientSession, *names: str) -> dict[str, list[Any]]:
    """Return the data of a page's plot that has these columns, as it is now."""
    sources = now(session).select({"type": ColumnDataSource})
    (found,) = (source for source in sources if set(names) <= source.data.keys())
    return {name: list(values) for name, values in found.data.items()}


def test_every_plot_is_in_the_list_that_jupyterlab_reads(site: Site) -> None:
    plots = json.loads(get(f"{site.url}/individual-plots.json"))
    assert {a for a in APPLICATIONS if a.startswith("/individual-")} <= set(plots.values())
    assert plots["Individual Gpusched Memory"] == "/individual-gpusched-memory"


@pytest.mark.parametrize("address", APPLICATIONS)
def test_page_is_served(site: Site, address: str) -> None:
    assert "bokeh" in get(site.url + address)


def test_bar_above_all_pages_leads_to_them(site: Site) -> None:
    page = get(f"{site.url}/status")
    assert '<a href="gpusched">' in page
    assert all(f'<a href="{address}">{title}</a>' in page for address, title in TITLES.items())


def test_devices_are_those_of_the_workers(site: Site, pulled: Any) -> None:
    session = pulled("gpus")
    memory = columns(session, "other", "limit")
    assert memory["label"] == ["0  CPU"]
    assert memory["other"][0] > 1 << 20 and memory["device"] == [0]
    assert columns(session, "written")["uuid"] == ["CPU of 127.0.0.1"]
    assert wait_for(lambda: columns(session, "used")["label"]) == ["0  CPU"]


def test_kernels_that_ran_before_are_listed_and_then_timed(site: Site, pulled: Any) -> None:
    session = pulled("kernels")
    names = wait_for(lambda: columns(session, "timed")["name"])
    assert any("square" in name for name in names)

    def timed(**wanted: str) -> dict[str, list[Any]]:
        (plot, column), *_ = wanted.items()
        found = columns(session, plot)
        done = len(found["name"]) >= len(names) and all(each > 0 for each in found[column])
        return found if done else {}

    with site.computing():
        bars = wait_for(lambda: timed(told="seconds"))
        table = wait_for(lambda: timed(timed="timed"))
    assert min(bars["rate"]) > 0
    assert set(table["device"]) == {"cpu"}
    assert all(n >= m for n, m in zip(table["launches"], table["timed"], strict=True))


def test_source_comes_when_a_kernel_is_clicked(site: Site, pulled: Any) -> None:
    session = pulled("individual-gpusched-kernel-source")
    source: Any = session.document.select_one({"type": ColumnDataSource})
    names = wait_for(lambda: columns(session, "timed")["name"])

    def shown() -> str:
        text: Any = now(session).select_one({"name": "gpusched_kernel_source"})
        return str(text.text) if "def point(" in text.text else ""

    source.selected.indices = [0]
    session.force_roundtrip()
    # Which row is the first may change as others take longer.
    assert any(wait_for(shown).startswith(f"# {name}, written by gpusched") for name in names)


def test_tasks_and_stops_are_told(site: Site, pulled: Any) -> None:
    session = pulled("fusion")
    tasks = columns(session, "calls")
    assert all(
        calls >= made > 0 for calls, made in zip(tasks["calls"], tasks["tasks"], strict=True)
    )
    stops = wait_for(lambda: _stops(session))
    assert all(stops["reason"]) and all(stops["remedy"])


def _stops(session: ClientSession) -> Any:
    found = columns(session, "remedy")
    return found if found["reason"] else None


def test_timeline_shows_what_runs(site: Site, pulled: Any) -> None:
    session = pulled("timeline")
    with site.computing():
        spans = wait_for(lambda: _kernels(session))
    assert all(start <= end for start, end in zip(spans["start"], spans["end"], strict=True))
    assert any(lane.startswith("0: thread") for lane in spans["lane"])


def _kernels(session: ClientSession) -> Any:
    spans = columns(session, "lane")
    return spans if "kernel" in spans["told"] else None


def test_workers_tell_only_while_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "LEASE", 1.0)
    with (
        gpusched.Cluster(1, 1, gpus=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        client.compute(program(), sync=True)
        assert not events.active
        look = observer_of(cluster.scheduler).look
        wait_for(lambda: cluster.loop.add_callback(look) or events.active)
        wait_for(lambda: not events.active)
    assert not events.active


def test_worker_that_joins_is_watched_too(site: Site, pulled: Any) -> None:
    pulled("timeline")

    def watched(dask_scheduler: Any) -> set[str]:
        return {worker for worker, _ in observer_of(dask_scheduler).spans}

    with running(worker(site.file, "1")):
        site.client.wait_for_workers(2, timeout=PATIENCE)
        with site.computing():
            wait_for(lambda: site.client.run_on_scheduler(watched) >= {"0", "1"})


@pytest.mark.processes
def test_plain_scheduler_shows_them_and_workers_of_dask_are_devices(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    common = [f"--scheduler-file={file}", "--host=127.0.0.1"]
    page = ["--port=0", "--dashboard-address=127.0.0.1:0"]
    preload = ["--preload=gpusched.cluster.scheduler"]
    kind = ["--threads=1", "--no-dashboard", "--name=0", f"--local-directory={tmp_path}"]
    with (
        running(["dask", "scheduler", *common, *page, *preload],
                ["dask", "worker", *common, *kind]),
        Client(address_in(file), timeout=PATIENCE) as client,
    ):  # fmt: skip
        client.wait_for_workers(1, timeout=PATIENCE)
        found = Site(file, client)
        session = pull_session(url=f"{found.url}/gpus")
        try:
            assert columns(session, "limit")["label"] == ["0  CPU"]
        finally:
            session.close()
        for address in ("kernels", "fusion", "timeline"):
            assert "bokeh" in get(f"{found.url}/{address}")


def test_several_schedulers_follow_in_one_process() -> None:
    for _ in range(2):
        with gpusched.Cluster(0, gpus=0, processes=False,
                              dashboard_address="127.0.0.1:0") as cluster:  # fmt: skip
            url = f"http://127.0.0.1:{cluster.scheduler.services['dashboard'].port}"
            assert get(f"{url}/status").count('<a href="gpusched">') == 1
            assert "/individual-gpusched-spill" in get(f"{url}/individual-plots.json")


@pytest.mark.processes
def test_bokeh_is_imported_only_for_a_dashboard() -> None:
    code = (
        "import sys, gpusched\n"
        "from gpusched.dashboard import page_registration\n"
        "with gpusched.local(): pass\n"
        "assert 'bokeh' not in sys.modules\n"
        "assert not page_registration.register()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
