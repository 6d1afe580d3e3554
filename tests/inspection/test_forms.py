"""The same explanation as text, as HTML and as data."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pytest

from gpusched import explain
from gpusched.inspection.text import merged

from .programs import PROGRAMS, numbers


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_json_comes_back_as_it_was(build: Callable[[], Any]) -> None:
    found = explain(build())
    assert json.loads(found.to_json()) == found.to_dict()
    assert json.loads(found.to_json(indent=1)) == found.to_dict()


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_explaining_twice_tells_the_same(build: Callable[[], Any]) -> None:
    program = build()
    assert explain(program).to_dict() == explain(program).to_dict()


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("details", [False, True])
def test_text_fits_a_terminal(build: Callable[[], Any], details: bool) -> None:
    text = explain(build()).text(details)
    in_source = False
    for line in text.splitlines():
        in_source = line.startswith("Kernel ") or (in_source and not line.startswith("Times "))
        assert in_source or len(line) <= 80, line


def test_text_says_what_matters() -> None:
    x = numbers((60, 40), (20, 20))
    total = ((x + 1.5) * x - 2.5) / 3
    text = str(explain(total))
    assert text.startswith(("30 tasks as built, 6 as run", "24 tasks as built"))
    assert "\nStage 1  total (truediv)\n" in text
    assert "total = ((x + 1.5) * x - 2.5) / 3" in text
    assert "6 launches, 4 operations per element" in text
    assert "intensity 0.25 operations per byte" in text
    assert "; a task costs " in " ".join(text.split())


def test_folder_one_is_in_may_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = explain((numbers((60, 40), 20) + 1.5) * 3)
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert "test_forms.py:" in str(found)


def test_pickling_says_what_to_take_instead() -> None:
    found = explain((numbers((60, 40), 20) + 1.5) * 3)
    with pytest.raises(TypeError, match=r"take explanation\.to_dict"):
        pickle.dumps(found)


def test_sources_are_in_the_details_only() -> None:
    found = explain((numbers((60, 40), 20) + 1.5) * 3)
    assert "def point(" not in str(found)
    assert "def point(" in found.text(details=True)


class _Tags(HTMLParser):
    """Checks that every tag is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("br", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_html_is_well_formed(build: Callable[[], Any]) -> None:
    found = explain(build())
    tags = _Tags()
    tags.feed(found._repr_html_())
    assert not tags.open
    for kernel in found.kernels:
        assert kernel.name in found.html()


def test_kernel_shows_its_lines_and_source() -> None:
    scaled = (numbers((60, 40), 20) + 1.5) * 3
    (kernel,) = explain(scaled).kernels
    html = kernel._repr_html_()
    tags = _Tags()
    tags.feed(html)
    assert not tags.open
    assert "scaled = (numbers((60, 40), 20) + 1.5) * 3" in html
    assert "def point(" in html and f"<b>{kernel.name}</b>, launched 6 times" in html


def test_html_escapes_the_users_text() -> None:
    x = numbers((60, 40), 20)
    smaller = (x < 0.5) & (x > 0.25)
    html = explain(smaller).html()
    assert "(x &lt; 0.5) &amp; (x &gt; 0.25)" in html


def test_one_line_that_stops_in_many_stages_is_shown_once() -> None:
    maxima = [da.nanmax(numbers((60, 40), 20, seed=k)) for k in range(3)]
    found = explain(maxima)
    several = [stop for stop in found.breaks if stop.operation == "_nanmax_skip"]
    assert len(several) == 3
    assert [stop.tasks for stop in merged(tuple(several))] == [18]
    assert "1 more graph break" in str(found)


def test_small_arrays_say_at_once_that_nothing_is_fused_and_why() -> None:
    with dask.config.set({"gpusched.fusion.minimum-elements": 4096}):
        found = explain(numbers((10,), 5) * 2 + 1)
    told = "Nothing is fused: small chunks."
    assert str(found).startswith(told)
    assert told in found.html()
