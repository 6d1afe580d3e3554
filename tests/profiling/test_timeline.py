"""Spans on lanes, and the table of kernels."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.profiling.process_report import Gathered, Limit
from gpusched.profiling.timeline import Span

from .made import event, kernel, profile

times = st.integers(0, 50).map(float)
spans = st.lists(st.tuples(times, times).filter(lambda pair: pair[0] < pair[1]), max_size=30)


@given(spans)
def test_spans_of_a_lane_follow_each_other_or_are_nested(found: list[tuple[float, float]]) -> None:
    made = profile(("client", [event("task", "", *pair) for pair in found]), seconds=50.0)
    assert sorted((s.start, s.end) for s in made.timeline.spans) == sorted(found)
    lanes: defaultdict[int, list[Span]] = defaultdict(list)
    for span in made.timeline.spans:
        lanes[span.lane].append(span)
    for lane in lanes.values():
        for first, second in itertools.combinations(lane, 2):
            apart = second.start >= first.end or first.start >= second.end
            nested = (first.start <= second.start and second.end <= first.end) or (
                second.start <= first.start and first.end <= second.end
            )
            assert apart or (nested and first.depth != second.depth)


def test_time_inside_something_else_counts_once() -> None:
    made = profile(
        ("client", [event("task", "", 0, 10), event("compile", "k", 1, 4, about="disk"),
                    kernel(5, 6), kernel(6, 8)])
    )  # fmt: skip
    assert made.spent == {"task": 4.0, "kernel": 3.0, "compile": 3.0}
    assert made.threads == 1


def test_what_is_outside_of_the_profile_is_left_out() -> None:
    made = profile(("client", [kernel(-2, -1), kernel(-1, 1), kernel(9, 12), kernel(11, 12)]))
    assert [(s.start, s.end) for s in made.timeline.spans] == [(-1, 1), (9, 12)]


def test_lanes_are_named_for_people() -> None:
    names = ["ThreadPoolExecutor-0_1", "0-Dask-Default-Threads-77-2", "MainThread", "gpusched-x",
             "Dask-Offload_0"]  # fmt: skip
    events = [event("task", "", k, k + 0.5, thread=name) for k, name in enumerate(names)]
    transfer = event("transfer", "receive", 1, 2, thread="receive", about=("tcp://x", 2))
    made = profile(("0", [*events, transfer]))
    assert made.timeline.processes[0].name == "worker 0"
    assert {lane.name for lane in made.timeline.lanes} == {
        "thread 1", "thread 2", "main thread", "gpusched-x", "offload thread", "received"
    }  # fmt: skip
    assert made.timeline.lanes[-1].name == "received"
    assert made.timeline.spans[-1].detail == "2 chunks from tcp://x"


@pytest.mark.parametrize(("starts", "limit"), [([0.0, 1.0], 8e9), ([0.0, 0.0], 5e9)])
def test_limit_is_what_is_left_beside_other_launches(starts: list[float], limit: float) -> None:
    events = [
        kernel(start, start + 1, 4_000_000_000, thread=f"t-{k}") for k, start in enumerate(starts)
    ]
    made = profile(("0", events), gathered=Gathered(limits={"here": Limit(8e9, 10e9)}))
    (row,) = made.kernels
    assert row.limit == pytest.approx(limit)
    assert row.rate == pytest.approx(4e9)
    assert row.share == pytest.approx(4e9 / limit)


def test_rate_is_that_of_the_median_launch() -> None:
    events = [kernel(0, 1, 100), kernel(1, 3, 100), kernel(3, 9, 100)]
    (row,) = profile(("0", events), gathered=Gathered(limits={"here": Limit(1e9, 1e9)})).kernels
    assert (row.rate, row.seconds, row.median_seconds, row.launches) == (50.0, 9.0, 2.0, 3)


def test_gpu_kernels_have_lanes_and_limits_of_their_own() -> None:
    events = [kernel(0, 1, 100, device="cuda"), kernel(0, 1, 100)]
    limits = Gathered(limits={"here": Limit(200.0, 200.0)}, gpu_limits={"here": Limit(1e3, 1e3)})
    made = profile(("0", events), gathered=limits)
    shares = {row.device: row.share for row in made.kernels}
    assert shares == {"cpu": pytest.approx(0.5), "cuda": pytest.approx(0.1)}
    assert {lane.name for lane in made.timeline.lanes} == {"main thread", "main thread, GPU"}
    assert "add on cuda" in made.text()


def test_launch_too_short_for_the_clock() -> None:
    (row,) = profile(("0", [kernel(1, 1, 100)])).kernels
    assert row.launches == 1 and row.seconds == 0
