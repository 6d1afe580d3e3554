"""What a segment remembers of inputs of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from threading import Barrier, Event
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.graph.running import decisions, remembered
from gpusched.graph.running.decisions import Direct, Plans
from gpusched.graph.running.remembered import CONSTANTS, Remembered
from gpusched.plan.plan import Plan
from gpusched.store.statistics import reset_statistics, statistics

KEY = ((np.dtype(float), (3,), (8,)),)
OTHER = ((np.dtype(float), (4,), (8,)),)


def plan(nbytes: int = 0) -> Plan:
    return Plan([], 1, (), (), ((0, np.empty(nbytes, np.int8)),))


def test_the_plan_that_held_last_comes_first() -> None:
    kept, plans = Remembered(), Plans((plan(), plan()))
    kept.add(KEY, plans)
    kept.held_last(KEY, plans, plans.plans[1])
    found = kept.get(KEY)
    assert isinstance(found, Plans)
    assert found.plans == plans.plans[::-1]


def test_plans_that_were_forgotten_do_not_come_back() -> None:
    """Another thread may run one of them meanwhile."""
    kept, plans = Remembered(), Plans((plan(), plan()))
    kept.add(KEY, plans)
    kept.forget(KEY)
    kept.held_last(KEY, plans, plans.plans[1])
    assert kept.get(KEY) is None


def test_what_cannot_be_compared_is_not_remembered() -> None:
    kept = Remembered()
    kept.add(None, Plans((plan(),)))
    assert not kept.values()
    assert kept.newness(None) == decisions.UNCOMPARABLE


def test_plans_with_large_arrays_make_room_for_others() -> None:
    kept = Remembered()
    decision = Direct("f", GraphBreak.SMALL("small"))
    kept.add(KEY, Plans((plan(CONSTANTS),)))
    kept.add("small", decision)
    kept.add(OTHER, Plans((plan(CONSTANTS // 2),)))
    assert kept.get(KEY) is None
    assert kept.get("small") is decision
    assert kept.get(OTHER) is not None


def test_news_is_given_once() -> None:
    kept = Remembered()
    assert kept.newness(KEY) == decisions.FIRST
    kept.add(KEY, Plans((plan(),)))
    assert kept.newness(OTHER) == "another shape of input 0"
    kept = kept.instead(None)
    assert kept.newness(OTHER) == decisions.CHANGED
    assert kept.newness(OTHER) == decisions.FIRST


@contextmanager
def recorded_elsewhere(kept: Remembered, found: Plans | None) -> Iterator[None]:
    """Have another thread record inputs, and come to some plans once the context is left."""
    begun, goes_on = Event(), Event()

    def record() -> None:
        with kept.recording(KEY):
            begun.set()
            assert goes_on.wait(60)
            if found is not None:
                kept.add(KEY, found)

    with ThreadPoolExecutor(1) as threads:
        recording = threads.submit(record)
        assert begun.wait(60)
        try:
            yield
        finally:
            goes_on.set()
            recording.result()


def test_what_another_thread_finds_out_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "PATIENCE", 60)
    kept, plans = Remembered(), Plans((plan(),))
    with ThreadPoolExecutor(1) as threads, recorded_elsewhere(kept, plans):
        found = threads.submit(kept.known, KEY)
        assert kept.known(OTHER) is None
    assert found.result() is plans
    assert kept.known(KEY) is plans


def test_a_recording_that_takes_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "PATIENCE", 0.001)
    kept = Remembered()
    with recorded_elsewhere(kept, None):
        assert kept.known(KEY) is None
        with kept.recording(KEY):
            kept.add(KEY, plans := Plans((plan(),)))
        assert kept.known(KEY) is plans


def test_recordings_of_which_nothing_is_kept_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered, "PATIENCE", 60)
    kept = Remembered()
    kept.lasts = False
    with recorded_elsewhere(kept, None):
        assert kept.known(KEY) is None


def test_threads_share_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "PATIENCE", 60)
    count = 8
    barrier = Barrier(count)

    def started_together(block: np.ndarray) -> np.ndarray:
        barrier.wait(60)
        return block

    numbers = da.from_array(np.arange(800_000.0), chunks=100_000)
    x = numbers.map_blocks(started_together, meta=np.empty(0))
    reset_statistics()
    with ThreadPoolExecutor(count) as pool, gpusched.enable():
        found = da.sqrt(x * 2 + 1).compute(scheduler="threads", pool=pool)
    np.testing.assert_array_equal(found, np.sqrt(np.arange(800_000.0) * 2 + 1))
    # Those that come before the first one has begun make one of their own.
    assert 0 < sum(statistics().recorded.values()) < count


def test_what_a_plan_computes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "PATIENCE", 60)
    begun, barrier, run, known = Event(), Barrier(2), Plan.run, Remembered.known
    asked = count()

    def after_the_first_has_begun(self: Remembered, key: Any) -> Any:
        assert next(asked) == 0 or begun.wait(30)
        return known(self, key)

    def together(self: Plan, *args: Any) -> Any:
        begun.set()
        barrier.wait(30)
        return run(self, *args)

    monkeypatch.setattr(Remembered, "known", after_the_first_has_begun)
    monkeypatch.setattr(Plan, "run", together)
    reset_statistics()
    numbers = da.from_array(np.arange(200_000.0), chunks=100_000)
    with (
        ThreadPoolExecutor(2) as pool,
        gpusched.enable(),
        dask.config.set({"gpusched.fusion.compile": "wait"}),
    ):
        found = da.sqrt(numbers * 3 + 1).compute(scheduler="threads", pool=pool)
    np.testing.assert_array_equal(found, np.sqrt(np.arange(200_000.0) * 3 + 1))
    assert sum(statistics().recorded.values()) == 1
