"""The dashboard's page of devices, with four GPUs at work.

``GPUSCHED_REGENERATE=1 make test-gpu ARGS="tests/gpu/test_dashboard.py"`` takes its picture.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dask.array as da
import pytest
from distributed import Client

import gpusched
from tests import emulated_gpu

pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytest.importorskip("playwright", reason="needs playwright, of the extra test")

from playwright.sync_api import Page

from tests.dashboard.test_browser import CHROMIUM, browser, page, picture, settle, wait_for_data

__all__ = ["browser", "page"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.processes,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
    pytest.mark.skipif(not emulated_gpu.active, reason="is about the emulated GPU: make test-gpu"),
]

FOUR_AT_WORK = "'used' in data && data.used.length == 4 && data.used.filter(u => u > 0).length >= 2"


@contextmanager
def working(client: Client) -> Iterator[None]:
    """Compute with chunks on all GPUs again and again while the block runs."""
    kept = (da.ones((1600, 1000), chunks=(100, 1000)) * 2 + 1).persist()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            client.compute((da.exp(-kept) * da.sqrt(kept)).sum(), sync=True)

    thread = threading.Thread(target=work, name="job")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_page_shows_four_gpus_at_work(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(emulated_gpu.SWITCH, "devices=4,memory=2000000000")
    options = {"gpus": "0,1,2,3", "dashboard_address": "127.0.0.1:0"}
    with gpusched.Cluster(**options) as cluster, Client(cluster) as client, gpusched.enable():
        client.wait_for_workers(4, timeout=240)
        page.goto(cluster.dashboard_link.replace("status", "gpus"))
        with working(client):
            wait_for_data(page, FOUR_AT_WORK)
            settle(page)
            picture(page, "four-gpus")
        page.goto("about:blank")  # It would complain of a scheduler that goes.
