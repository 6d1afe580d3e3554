"""Tiers of tests: which of them run by default, and what keeps these quick.

A test is in the default tier unless a marker takes it out. Two markers are set here, since they
follow from the test itself: ``processes``, where one of its fixtures starts processes, and the
skip of ``gpu`` where there is none. The others stand at the tests, and a test without one that
starts a process or takes longer than `LIMIT` fails.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

import pytest

from gpusched import cudadriver

LIMIT = float(os.environ.get("GPUSCHED_TEST_LIMIT", "3"))
"""Seconds of computing that a test of the default tier may take, on the machine of `REFERENCE`.

Computing, not the clock's: what else runs on the machine must not decide. Waiting counts a quarter.
`.ci/run` sets a higher one: one measurement on a strange machine must not refuse a change.
"""

REFERENCE = 0.028
"""Seconds of `_work` on an Intel Xeon (Sapphire Rapids, Python 3.11), measured 2026-11-25."""

NOT_LIMITED = ("slow", "exhaustive", "processes", "peers", "nightly", "essential", "gpu")
"""Markers of tests that the rules of the default tier do not hold for."""

Fixture = TypeVar("Fixture", bound=Callable[..., Any])


def starts_processes(fixture: Fixture) -> Fixture:
    """Mark a fixture's function: every test that uses it starts processes.

    Goes below ``@pytest.fixture``, since pytest takes no marks on fixtures.
    """
    fixture.starts_processes = True  # type: ignore[attr-defined]
    return fixture


def exhaustive(*values: Any) -> list[Any]:
    """Return parameters of tests that `make test-all` has, but no tier that is run for a change."""
    return [pytest.param(value, marks=pytest.mark.exhaustive) for value in values]


def in_host_memory(on_gpu: bool) -> pytest.MarkDecorator:
    """Return the mark of tests about arrays that another library has in host memory, if it does."""
    reason = "is about arrays in host memory, and this GPU would have them"
    return pytest.mark.skipif(on_gpu, reason=reason)


def every(nth: int, values: Iterable[Any]) -> list[Any]:
    """Return parameters of which the default tier takes each n-th, beginning with the first."""
    values = list(values)
    return [v for k, v in enumerate(values) for v in ([v] if k % nth == 0 else exhaustive(v))]


def is_default(config: pytest.Config) -> bool:
    """Return whether this run is one of the default tier, by its expression of markers."""
    measured = getattr(config.option, "cov_source", None)  # Which takes time of its own.
    return "or essential" in config.option.markexpr and not measured


def collect_less() -> None:
    """Leave what is there now out of garbage collections, and make them rare: a seventh of a run.

    There are ten thousand tests, compiling makes many objects, and numba keeps many.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)


def set_markers(items: Iterable[pytest.Item]) -> None:
    """Give tests the markers that follow from their fixtures and from this machine."""
    no_gpu = pytest.mark.skip(reason="needs an NVIDIA GPU, or the emulated one: make test-gpu")
    for item in items:
        if any(_starts(definition.func) for definition in _fixtures(item)):
            item.add_marker(pytest.mark.processes)
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(no_gpu)


@cache
def has_gpu() -> bool:
    """Return whether the driver, NVIDIA's or the emulated one, has a GPU for this process."""
    try:
        return cudadriver.start(cudadriver.load()).devices > 0
    except OSError:
        return False


def _fixtures(item: pytest.Item) -> list[Any]:
    info = getattr(item, "_fixtureinfo", None)
    return [found[-1] for found in info.name2fixturedefs.values()] if info else []


def _starts(fixture: Any) -> bool:
    return getattr(fixture, "starts_processes", False)


class Watch:
    """What the test that runs has used since its call began."""

    _EVENTS = frozenset(["os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"])
    _ONCE = frozenset(["uname", "file", "fc-list"])
    """Programs that platform and matplotlib ask something, in whatever test is the first."""

    def __init__(self) -> None:
        self.begin()
        sys.addaudithook(self._note)

    def begin(self) -> None:
        """Start counting."""
        self.started_process = False
        self._clock, self._computing = time.perf_counter(), _computing()

    def seconds(self) -> float:
        """Return seconds of computing, of all threads, or a quarter of the clock's if more."""
        clock = time.perf_counter() - self._clock
        return max(_computing() - self._computing, clock / 4)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in self._EVENTS and not (arguments and arguments[0] in self._ONCE):
            self.started_process = True


def _computing() -> float:
    """Return the seconds that this process and those it waited for have computed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def broken_rule(item: pytest.Item, watch: Watch) -> str | None:
    """Return which rule of the default tier a test has broken, and what to do; None if none."""
    if any(item.get_closest_marker(name) for name in NOT_LIMITED):
        return None
    if watch.started_process:
        return "starts processes: give it @pytest.mark.processes, which 'make test-processes' runs"
    seconds = watch.seconds()
    if seconds <= LIMIT or seconds <= (limit := LIMIT * max(1.0, _work() / REFERENCE)):
        return None
    return (
        f"took {seconds:.1f} s of computing, and a test of the default tier may take {limit:.1f} "
        "s on this machine: make it quicker, or give it @pytest.mark.exhaustive if it is one of "
        "many combinations, @pytest.mark.slow otherwise; 'make test-exhaustive' runs both"
    )


def _work() -> float:
    """Return the seconds of computing that a fixed piece of work takes here."""
    started = time.thread_time()
    total = 0
    for number in range(1_000_000):
        total += number & 7
    return time.thread_time() - started


def skipped(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return one line for each reason for which tests were skipped, the most frequent first."""
    reasons = Counter(_reason(report) for report in reports)
    return [f"{count:6,} skipped: {reason}" for reason, count in reasons.most_common()]


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
