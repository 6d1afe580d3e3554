"""A profile as a trace, a page, text and data."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpusched.profiling import Profile, html
from gpusched.profiling.process_report import Gathered
from gpusched.profiling.timeline import KINDS

from .made import event, kernel, profile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NASTY = "</script><script>document.title='broken'</script>&\"'"


def full() -> Profile:
    """Return a profile with every kind of event, and names that could break a page."""
    about: dict[str, Any] = {
        "kernel": ("cpu", ()), "compile": "cluster", "transfer": ("tcp://b:1", 1), "wait": NASTY,
        "spill": ("x", 0),
    }  # fmt: skip
    worker = []
    for k, kind in enumerate(KINDS):
        name = "receive" if kind == "transfer" else NASTY
        thread = "receive" if kind == "transfer" else "Dask-Default-Threads-1-1"
        worker.append(
            event(kind, name, k, k + 0.75, thread=thread, task=("x", k), nbytes=1000,
                  about=about.get(kind))
        )  # fmt: skip
    gathered = Gathered(changes=[(2.0, "worker b left")], notes=[NASTY])
    client = [event("graph", "optimise", 0.0, 0.5), event("queue", "", 1, 2, about="x")]
    return profile(("client", client), ("0", worker), seconds=12.0, gathered=gathered)


def test_trace_follows_the_trace_event_format(tmp_path: Path) -> None:
    full().save_trace(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())
    assert found["displayTimeUnit"] in ("ms", "ns")
    named: dict[str, set[Any]] = {"process_name": set(), "thread_name": set()}
    used = set()
    for each in found["traceEvents"]:
        assert each["ph"] in ("M", "X", "i")
        assert type(each["pid"]) is int and type(each["tid"]) is int and each["name"]
        if each["ph"] == "M":
            assert each["name"] in (*named, "process_sort_index", "thread_sort_index")
            named.get(each["name"], set()).add((each["pid"], each["tid"]))
        else:
            assert each["ts"] >= 0 and each["cat"]
        if each["ph"] == "X":
            assert each["dur"] >= 0
            used.add((each["pid"], each["tid"]))
        if each["ph"] == "i":
            assert each["s"] in ("g", "p", "t")
    assert used <= named["thread_name"]
    assert {pid for pid, _ in used} == {pid for pid, _ in named["process_name"]}
    # Perfetto takes these for the main thread, and draws them as one.
    assert not [(pid, tid) for pid, tid in used if tid in (0, pid)]
    spans = {each["cat"]: each for each in found["traceEvents"] if each["ph"] == "X"}
    assert spans.keys() == set(KINDS)
    assert (spans["kernel"]["ts"], spans["kernel"]["dur"]) == (3e6, 0.75e6)
    assert spans["kernel"]["args"]["bytes"] == 1000


def test_data_is_json_and_complete() -> None:
    found = full()
    told = json.loads(json.dumps(found.to_dict()))
    assert len(told["spans"]) == len(found.timeline.spans) == len(KINDS) + 1
    assert told["queued"] == {"tasks": 1, "seconds": 1.0}
    assert told["notes"] == [NASTY] and told["changes"] == [[2.0, "worker b left"]]
    assert told["kernels"][0]["launches"] == 1


def test_text_tells_what_is_missing_and_who_left() -> None:
    text = full().text()
    assert "After 2.0 s, worker b left." in text
    assert "Missing: " in text
    assert "Tasks waited 1.0 s for a thread of their worker" in text


class Page(HTMLParser):
    """Collects what a page refers to, and its data."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.scripts = 0
        self.data = ""
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.scripts += tag == "script"
        self._inside = tag == "script" and given.get("id") == "data"
        for name in ("src", "href"):
            value = given.get(name)
            if value is not None and not value.startswith("data:"):
                self.outside.append(value)

    def handle_data(self, data: str) -> None:
        self.data += data if self._inside else ""
        self._inside = False


def test_page_needs_nothing_else_and_holds_any_name(tmp_path: Path) -> None:
    text = full().html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text
    page = Page()
    page.feed(text)
    assert page.outside == []
    assert page.scripts == 2
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)
    assert NASTY in json.loads(page.data)["names"]


def test_notebooks_show_the_page_in_a_frame_of_its_own() -> None:
    shown = full()._repr_html_()
    assert shown is not None and shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown


def test_page_of_too_many_spans_leaves_out_the_shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "SHOWN", 3)
    made = profile(("0", [kernel(k, k + 0.1 * (k + 1)) for k in range(5)]))
    page = Page()
    text = made.html()
    page.feed(text)
    assert len(json.loads(page.data)["spans"]) == 3
    assert "2 of the shortest spans are not shown" in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.processes
def test_page_runs_without_a_complaint(tmp_path: Path) -> None:
    """Its script draws, zooms, hides a kind and shows what is under the pointer."""
    probe = """
    <script>
    const errors = [];
    addEventListener("error", (event) => errors.push(event.message));
    addEventListener("load", () => {
      const span = data.spans.find((each) => each[NAME] === data.names.length - 1) || data.spans[0];
      const lane = data.lanes[span[LANE]], box = canvas.getBoundingClientRect();
      const at = { clientX: box.left + toX(span[START] + span[LENGTH] / 2),
        clientY: box.top + lane.top + span[DEPTH] * ROW + 4, bubbles: true };
      canvas.dispatchEvent(new PointerEvent("pointermove", at));
      const told = tip.textContent;
      canvas.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -500, cancelable: true }));
      const zoomed = to - from < total;
      document.querySelector("#legend button").click();
      dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
      draw();
      document.body.dataset.probe = JSON.stringify(
        { errors, told, zoomed, whole: to - from === total, hidden: hidden.size, height });
    });
    </script></head>"""
    page = tmp_path / "page.html"
    page.write_text(full().html().replace("</head>", probe, 1), encoding="utf-8")
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert found is not None, done.stderr[-2000:]
    told = json.loads(found[1].replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&"))
    assert told["errors"] == []
    assert told["zoomed"] and told["whole"] and told["hidden"] == 1
    assert told["height"] > 0 and told["told"]


def test_tasks_outside_kernels_are_named() -> None:
    worker = [
        event("task", "", 0.0, 4.0, task=("sort-1f", 0)),
        kernel(1.0, 2.0, task=("sort-1f", 0)),
        event("task", "", 5.0, 6.0, task=("load-2e", 0)),
        event("task", "", 6.0, 8.0, task=("sort-1f", 1)),
    ]
    found = profile(("0", worker))
    assert found.outside_kernels == {"sort": 5.0, "load": 1.0}
    assert re.search(r"Tasks, outside kernels\n  sort +5.0 s\n  load +1.0 s", found.text())
    assert "<h2>Tasks, outside kernels</h2>" in found.html()


def test_names_that_are_cut_off_end_in_dots() -> None:
    name = "a_function_with_a_name_of_very_many_words_that_goes_on"
    worker = [event("task", "", 0.0, 5.0, task=(f"{name}-1f", 0))]
    found = profile(("0", worker)).text()
    assert re.search(r"\n  a_function_with_a_name_of_very_many_wo\.\.\. +5.0 s", found)


def test_profile_of_nothing_has_no_headings() -> None:
    assert "\n" not in profile(("client", [])).text()


def test_one_kernel_more_than_shown_is_one_other() -> None:
    spans = [event("unfused", f"kernel_{k}", k, k + 1, task=("x", k)) for k in range(6)]
    assert "  and 1 other\n" in profile(("0", spans), seconds=6.0).text() + "\n"


def test_text_names_the_kernels_that_were_missing() -> None:
    worker = [event("unfused", "first_1f", 0, 1, task=("x", 0)),
              event("unfused", "second_2f", 1, 3, task=("x", 1)),
              event("unfused", "first_1f", 3, 6, task=("x", 2))]  # fmt: skip
    found = profile(("0", worker), seconds=6.0)
    assert "<code>second_2f</code>" in found.html()
    lines = found.text().splitlines()
    start = lines.index(
        "Kernels that were not compiled, by the time of the tasks that ran without them"
    )
    assert [line.strip() for line in lines[start + 1 : start + 5]] == [
        "first_1f", "2 tasks, 4.0 s in all", "second_2f", "1 task, 2.0 s in all",
    ]  # fmt: skip
