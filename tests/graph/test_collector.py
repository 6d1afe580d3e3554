"""While graphs are optimised, Python's garbage collector waits, and afterwards does what it did."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gpusched.graph.optimisation import MANY, collector_paused


class Cyclic:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """Let nothing be frozen, as the tests' start has it, and freeze what was."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    gc.collect()
    yield
    if frozen:
        gc.freeze()


def generation_of(value: object) -> int:
    return next(k for k in range(3) if any(each is value for each in gc.get_objects(k)))


@pytest.mark.parametrize("tasks", [0, MANY])
def test_the_collector_runs_again_also_after_an_error(tasks):
    def failing() -> None:
        with collector_paused(tasks):
            assert not gc.isenabled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_is_made_for_many_tasks_is_old_at_once():
    with collector_paused(MANY):
        made = [[] for _ in range(10_000)]
        before = gc.get_count()[0]
    assert before > 9_000
    assert gc.get_count()[0] < 1_000  # nothing is due
    assert generation_of(made[0]) == 2


def test_what_is_made_for_few_tasks_stays_young():
    with collector_paused(MANY - 1):
        made = [[]]
        assert generation_of(made[0]) == 0


def test_young_cycles_of_the_program_are_collected_before():
    gone = weakref.ref(Cyclic())
    assert gone() is not None
    with collector_paused(MANY):
        assert gone() is None


def test_what_the_program_has_frozen_stays_frozen():
    gc.freeze()
    try:
        with collector_paused(MANY):
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("tasks", [0, MANY])
def test_a_collector_that_was_off_stays_off(tasks):
    gc.disable()
    try:
        with collector_paused(tasks):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
