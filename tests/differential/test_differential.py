"""Random programs give what plain dask gives: fixed seeds here, new ones in the nightly run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.differential import running
from tests.differential.campaign import (
    GENERATORS,
    Counts,
    Result,
    campaign,
    check,
    scripted,
    shrunk,
)
from tests.differential.case import Case
from tests.differential.known import KNOWN
from tests.differential.running import Schedulers
from tests.tiers import exhaustive

SEEDS = 12
"""Cases of each kind in every run of the tests."""
MORE_SEEDS = 60
"""The same, of the tests that take longer."""
EACH = 2
"""Those of one test."""
SHOWN = 5
"""Failing programs that a failing test shows."""
MINUTES = 5
"""How long new seeds are tried, for each kind."""


@pytest.fixture(scope="module")
def schedulers() -> Iterator[Schedulers]:
    with Schedulers() as opened:
        # What starts once is not the first test's to wait for.
        for fused in (False, True):
            opened.get("cluster", fused)
        yield opened


def firsts() -> list[Any]:
    """Return the first seed of each test."""
    return [*range(0, SEEDS, EACH), *exhaustive(*range(SEEDS, MORE_SEEDS, EACH))]


@pytest.mark.parametrize("first", firsts())
@pytest.mark.parametrize("kind", GENERATORS)
def test_fixed_seeds(kind: str, first: int, schedulers: Schedulers) -> None:
    for seed in range(first, first + EACH):
        result = check(GENERATORS[kind](seed), schedulers)
        known = KNOWN.get((kind, seed))
        if known is None:
            assert not result.found, scripted(result)
        else:
            assert result.found, f"{kind} {seed} passes: its row ({known}) is to be removed"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", GENERATORS)
def test_new_seeds(kind: str, schedulers: Schedulers) -> None:
    first = int(os.environ.get("DIFFERENTIAL_SEED", time.time()))
    failed: list[Result] = []

    def note(result: Result) -> None:
        if result.found:
            failed.append(result)

    counts = campaign([kind], first, seconds=60 * MINUTES, schedulers=schedulers, on_result=note)
    print(f"seeds from {first}: {counts}")
    scripts = [scripted(shrunk(each, schedulers)) for each in failed[:SHOWN]]
    assert not failed, "\n\n".join(scripts)


FAILING = """
import threading
import warnings

import dask.array as da
import numpy as np

DATA = {}
late, started = threading.Event(), threading.Event()


def one(chunk, block_id):
    if block_id == (0,):
        started.wait(60)
        raise ValueError
    started.set()
    late.wait(60)
    warnings.warn("late")
    return chunk


def main(observe):
    observe("fails", lambda: da.zeros(2, chunks=1).map_blocks(one, dtype="f8", meta=np.zeros(0)))
    observe("next", lambda: da.zeros(2, chunks=1))
"""


@pytest.mark.parametrize("scheduler", ["threads", "cluster"])
def test_tasks_of_what_has_failed_end_before_the_next_is_computed(
    scheduler: str, schedulers: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def released() -> None:
        sys.modules[running.MODULE].late.set()

    class Pool(running.ContextAwareThreadPoolExecutor):
        def shutdown(self, *args: Any, **kwargs: Any) -> None:
            released()
            super().shutdown(*args, **kwargs)

    def idle(client: Any) -> bool:
        released()
        return is_idle(client)

    is_idle = running.idle
    monkeypatch.setattr(running, "ContextAwareThreadPoolExecutor", Pool)
    monkeypatch.setattr(running, "CPU_COUNT", 2)
    monkeypatch.setattr(running, "idle", idle)
    case = Case("functions", 0, FAILING, scheduler)
    found = running.run(case, False, schedulers).outcomes
    assert found["fails"].error == ("ValueError", "")
    assert found["fails"].warned == {("UserWarning", "late")}
    assert not found["next"].warned


def test_most_programs_run_kernels(schedulers: Schedulers) -> None:
    for kind in GENERATORS:
        counts: Counts = campaign([kind], 0, cases=6, schedulers=schedulers)
        assert counts.fused_cases >= 2
        assert counts.raising <= 3
