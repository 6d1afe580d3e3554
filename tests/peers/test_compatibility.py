"""The page of other packages' tests has what was measured of the packages in the table."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.page import replace
from tests.peers.compatibility import MARK, PAGE, breaks, kept, measured
from tests.peers.packages import PACKAGES


def test_the_page_is_made_of_what_was_measured(tmp_path: Path) -> None:
    results = kept()
    assert results.keys() <= PACKAGES.keys()
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text())
    replace(page, measured(results), MARK)
    assert page.read_text() == PAGE.read_text(), "run python -m tests.peers.compatibility --page"


def test_what_was_measured_is_of_the_table_and_nothing_was_lost() -> None:
    for name, one in kept().items():
        package = PACKAGES[name]
        assert one["release"] == package.release
        assert not one["lost"]
        assert one["passed"]["plain"]


def test_the_most_frequent_breaks_come_first() -> None:
    counts = {"breaks": [[["a", "why"], 1], [["b", "why"], 3], [["a", "other"], 2]]}
    assert breaks(counts) == [("b", "why", 3), ("a", "other", 2), ("a", "why", 1)]
