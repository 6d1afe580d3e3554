"""The dashboard of four GPUs in a browser: their figures move while a program runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import pytest
from distributed import Client

import gpusched
from tests import emulated_gpu
from tests.dashboard.conftest import Site
from tests.tiers import starts_processes
from tests.waiting import PATIENCE

pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytest.importorskip("playwright", reason="needs playwright, of the extra test")

from playwright.sync_api import Page

from tests.dashboard.test_browser import CHROMIUM, browser, page, picture

__all__ = ["browser", "page"]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not emulated_gpu.active, reason="is about the emulated GPU: make test-gpu"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
]

WATCH = """name => {
    const found = Bokeh.documents[0]._all_models.values();
    const source = [...found].find(({type, data}) => type === 'ColumnDataSource' && name in data);
    const seen = window.seen ??= {};
    const of_name = seen[name] ??= {};
    const note = (label, k) => (of_name[label] ??= new Set()).add(source.data[name][k]);
    source.data.label.forEach(note);
    return Object.values(of_name).filter(values => values.size >= 3).length === 4;
}"""
"""Notes the values of a column that each of the page's bars has had; holds when each of the four
has had three."""

SENT = """() => [...Bokeh.documents[0]._all_models.values()].some(
    ({type, text}) => type === 'Title' && text.includes('GPU to GPU'))"""
"""Whether a title says what went from GPU to GPU. Titles are drawn, and so are in no element."""


class FourGpus(Site):
    """A cluster whose program sends chunks from GPU to GPU."""

    def compute(self) -> None:
        """Run the program once."""
        x = da.arange(2_000_000, chunks=125_000, dtype="f8")
        y = ((x + 1) * 2).rechunk(150_000)
        assert self.client.compute(y.sum()).result(timeout=PATIENCE) == 2_000_000 * 2_000_001


@pytest.fixture
@starts_processes
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[FourGpus]:
    """Give a cluster of four GPUs on which the program has run once."""
    monkeypatch.setenv(emulated_gpu.SWITCH, "devices=4")
    with (
        gpusched.Cluster(gpus="0,1,2,3", memory_limit=0, dashboard_address="127.0.0.1:0") as made,
        Client(made) as client,
        gpusched.enable(),
    ):
        client.wait_for_workers(4, timeout=PATIENCE)
        found = FourGpus(Path(os.devnull), client)
        found.compute()
        yield found


def test_the_figures_of_four_gpus_move(four: FourGpus, page: Page) -> None:
    page.goto(f"{four.url}/gpus")
    page.wait_for_function("() => window.Bokeh && Bokeh.documents.length > 0")
    with four.computing():
        for name in ("used", "device"):
            page.wait_for_function(WATCH, arg=name, polling=100)
        page.wait_for_function(SENT)
        picture(page, "gpus")
    page.goto("about:blank")  # It would complain of a scheduler that goes.
