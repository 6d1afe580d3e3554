"""How much a task is expected to take."""

from __future__ import annotations

import pytest

from gpusched.workers.memory.estimates import Estimates


def test_largest_result_of_a_kind_is_expected_and_forgotten_by_and_by() -> None:
    estimates = Estimates()
    estimates.learn("mine", 1000, 800)
    estimates.learn("mine", 1001, 0)
    assert estimates.known("mine", 1002) == 700
    for _ in range(100):
        estimates.learn("mine", 1000, 0)
    assert (estimates.known("mine", 1000) or 0) < 10


def test_inputs_of_another_size_make_another_kind() -> None:
    estimates = Estimates()
    estimates.learn("mine", 1000, 1)
    assert estimates.known("mine", 5000) is None
    assert estimates.known("other", 1000) is None


def test_nearest_similar_kind_is_taken_in_proportion() -> None:
    estimates = Estimates()
    estimates.learn("mine", 1000, 300)
    estimates.learn("mine", 8000, 4000)
    assert estimates.guess("mine", 2000) == 600
    assert estimates.guess("mine", 500) == 150
    assert estimates.guess("mine", 4000) == 2000
    assert estimates.guess("mine", 10**6) == 10**6
    assert estimates.guess("mine", 0) == 0
    estimates.learn("made", 0, 10**6)
    assert estimates.guess("made", 2) == 2
    assert estimates.guess("other", 1000) == 1000


def test_kind_whose_tasks_still_end_is_not_forgotten_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpusched.workers.memory.estimates._KINDS", 2)
    estimates = Estimates()
    for other in range(5):
        estimates.learn("mine", 1000, 800)
        estimates.learn(f"other{other}", 1000, 0)
        assert estimates.known("mine", 1000) == 800
    assert estimates.known("other0", 1000) is None
