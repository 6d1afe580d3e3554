"""Kernels of several processes: sums, limits, and how much is kept."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gpusched.dashboard.launches import KEPT, Launches


def test_processes_of_a_host_share_its_limit() -> None:
    launches = Launches()
    launches.limits["host", "cpu"] = 10e9, 12e9
    launches.add(("host", 1), [("add", "cpu", 1, 1.0, 10**9)], {"cpu": 1.0})
    (row,) = launches.rows(())
    assert row.limit == 10e9  # By itself, a launch has what one thread can move.
    launches.add(("host", 2), [("add", "cpu", 1, 1.0, 10**9)], {"cpu": 1.0})
    (row,) = launches.rows(())
    # Of two that go on together, each has half: 10 then, 6 now, as long as each other.
    assert row.limit is not None and math.isclose(row.limit, 2 / (1 + 2) * 12e9)
    assert row.share is not None and math.isclose(row.share, 1e9 / row.limit)


def test_threads_of_a_process_share_the_limit() -> None:
    launches = Launches()
    launches.limits["host", "cpu"] = 10e9, 12e9
    launches.add(("host", 1), [("add", "cpu", 3, 3.0, 10**9)], {"cpu": 1.0})
    assert launches.rows(())[0].limit == 4e9


def test_limit_is_unknown_until_told() -> None:
    launches = Launches()
    launches.add(("host", 1), [("add", "cuda", 1, 1.0, 10**9)], {"cuda": 1.0})
    (row,) = launches.rows(())
    assert (row.limit, row.share, row.rate) == (None, None, 1e9)
    assert launches.places() == {("host", "cuda")}


def test_launches_that_were_not_timed_are_counted() -> None:
    launches = Launches()
    launches.add(("host", 1), [("timed", "cpu", 2, 0.5, 8)], {"cpu": 0.5})
    rows = launches.rows([{"timed": 5, "before": 7}, {"timed": 1}])
    assert [(row.name, row.launches, row.timed.launches) for row in rows] == [
        ("timed", 6, 2),
        ("before", 7, 0),
    ]
    assert rows[1].rate == 0.0 and rows[1].share is None


def test_shortest_kernels_are_forgotten_first() -> None:
    launches = Launches()
    named = [(f"k{number}", "cpu", 1, 1.0 + number, 8) for number in range(KEPT + 10)]
    launches.add(("host", 1), named, {"cpu": 1.0})
    rows = launches.rows(())
    assert len(rows) == KEPT
    assert rows[0].name == f"k{KEPT + 9}" and rows[-1].name == "k10"


_SECONDS = st.floats(1e-6, 10)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), _SECONDS, _SECONDS, st.integers(0, 10**9)),
        min_size=1,
        max_size=20,
    )
)
def test_shares_are_of_what_is_possible(told: list[tuple[int, float, float, int]]) -> None:
    launches = Launches()
    launches.limits["host", "cpu"] = 3e9, 5e9
    for pid, spent, busy, nbytes in told:
        launches.add(("host", pid), [("k", "cpu", 1, spent, nbytes)], {"cpu": busy})
    (row,) = launches.rows(())
    assert row.limit is None or 0 < row.limit <= 3e9 * (1 + 1e-9)
    assert math.isclose(row.timed.seconds, sum(entry[1] for entry in told), abs_tol=1e-9)
