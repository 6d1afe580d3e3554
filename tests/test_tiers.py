"""The rules of the default tier, and what counts the outcome of `make test-all`."""

from __future__ import annotations

import doctest
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests import everything, tiers


def item(*markers: str) -> Any:
    return SimpleNamespace(get_closest_marker=lambda name: name in markers)


def test_process_takes_a_marker() -> None:
    watch = tiers.Watch()
    watch.started_process = True
    broken = tiers.broken_rule(item(), watch)
    assert broken is not None
    assert "@pytest.mark.processes" in broken
    assert tiers.broken_rule(item("processes"), watch) is None


def test_long_test_takes_a_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = tiers.Watch()
    assert tiers.broken_rule(item(), watch) is None
    while watch.seconds() <= 0.2:
        time.process_time()
    with monkeypatch.context() as patch:
        patch.setattr(tiers, "LIMIT", 0.01)
        broken = tiers.broken_rule(item(), watch)
        assert broken is not None
        assert "@pytest.mark.slow" in broken
        assert tiers.broken_rule(item("slow"), watch) is None


@pytest.mark.essential
def test_processes_are_noticed() -> None:
    watch = tiers.Watch()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert watch.started_process
    watch.begin()
    assert not watch.started_process


def test_fixtures_that_start_processes_mark_their_tests(request: pytest.FixtureRequest) -> None:
    """All of them, in whatever part of the tests is collected now."""
    for one in request.session.items:
        names = getattr(one, "fixturenames", ())
        if {"gpusched_run", "start"} & set(names):
            assert one.get_closest_marker("processes"), one.nodeid


@pytest.mark.parametrize(("expression", "default"), [("not slow or essential", True), ("", False)])
def test_rules_hold_in_the_default_tier_only(expression: str, default: bool) -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
    assert tiers.is_default(config) == default


def test_doctests_of_everything() -> None:
    result = doctest.testmod(everything)
    assert result.attempted > 2
    assert not result.failed


def test_reasons_are_counted() -> None:
    def report(reason: str) -> Any:
        return SimpleNamespace(longrepr=("file.py", 3, f"Skipped: {reason}"))

    found = tiers.skipped([report("needs a GPU"), report("no torch"), report("needs a GPU")])
    assert found == ["     2 skipped: needs a GPU", "     1 skipped: no torch"]
