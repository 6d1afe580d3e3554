"""What a worker reports while it is watched; its stream is the test's."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm.core import CommClosedError

from gpusched import events
from gpusched.workers import watched
from gpusched.workers.watched import LISTED, SEEN, WATCH, Watched


class Stream:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.closed = False

    def send(self, message: dict[str, Any]) -> None:
        if self.closed:
            raise CommClosedError("closed")
        self.sent.append(message)


@pytest.fixture
def worker() -> Iterator[Any]:
    """Give what stands for a worker, without an event loop: the test says when it tells."""
    found = SimpleNamespace(
        stream_handlers={},
        batched_stream=Stream(),
        transfer_incoming_log=deque([transfer(1)]),
        transfer_outgoing_log=deque(),
        scheduler_delay=100.0,
    )
    yield found
    assert events.active == ()


@pytest.fixture
def watch(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Give what watches that worker, whose clock does not call it."""
    found = Watched()
    found.setup(worker)
    monkeypatch.setattr(found, "_callback", SimpleNamespace(start=int, stop=int))
    yield found
    found.teardown(worker)


def transfer(nbytes: int) -> dict[str, Any]:
    return {"start": 1.0, "stop": 2.0, "total": nbytes, "who": "tcp://b", "keys": {}}


def kernel(name: str, start: float, end: float, nbytes: int = 8) -> None:
    events.record("kernel", name, start, end, nbytes, ("cpu", ()))


def test_nothing_is_recorded_until_somebody_looks(worker: Any, watch: Watched) -> None:
    assert worker.stream_handlers == {WATCH: watch.watch}
    assert events.active == () and worker.batched_stream.sent == []
    watch.watch(60, 10)
    assert len(events.active) == 1
    watch.watch(60, 10)
    assert len(events.active) == 1 and len(worker.batched_stream.sent) == 1


def test_kernels_are_summed_by_name(worker: Any, watch: Watched) -> None:
    watch.watch(60, 10)
    kernel("a", 1.0, 3.0, 100)
    kernel("b", 2.0, 2.5)
    kernel("a", 5.0, 6.0, 10)
    events.record("task", "", 0.0, 9.0)
    watch._tell()
    told = worker.batched_stream.sent[-1]
    assert told["op"] == SEEN
    assert told["kernels"] == [("a", "cpu", 2, 3.0, 110), ("b", "cpu", 1, 0.5, 8)]
    assert told["busy"] == {"cpu": 3.0}
    watch._tell()
    assert worker.batched_stream.sent[-1]["kernels"] == []


def test_spans_are_on_the_schedulers_clock(worker: Any, watch: Watched) -> None:
    watch.watch(60, 10)
    now = time.perf_counter()
    kernel("a", now - 1, now)
    before = time.time()
    watch._tell()
    (span,) = worker.batched_stream.sent[-1]["spans"]
    kind, name, start, end, thread, nbytes = span
    assert (kind, name, thread, nbytes) == ("kernel", "a", "MainThread", 8)
    assert abs(end - start - 1) < 1e-3
    # As far apart as two readings of the clock were: generously, for a machine that paused.
    assert abs(end - (before + 100)) < 60


def test_tasks_that_ran_unfused_are_on_the_timeline(worker: Any, watch: Watched) -> None:
    watch.watch(60, 10)
    events.record("unfused", "a", 1.0, 3.0)
    watch._tell()
    (span,) = worker.batched_stream.sent[-1]["spans"]
    assert span[:2] == ("unfused", "a")
    assert worker.batched_stream.sent[-1]["kernels"] == []


def test_longest_spans_are_sent(worker: Any, watch: Watched) -> None:
    watch.watch(60, 2)
    for length in (3.0, 1.0, 4.0, 2.0):
        kernel(f"{length}", 0.0, length)
    watch._tell()
    told = worker.batched_stream.sent[-1]
    assert [span[1] for span in told["spans"]] == ["4.0", "3.0"]
    assert told["left_out"] == 2


def test_lists_are_bounded(worker: Any, watch: Watched) -> None:
    watch.watch(60, 10)
    for number in range(LISTED + 5):
        kernel(f"k{number}", 0.0, 1.0 + number)
    watch._tell()
    found = worker.batched_stream.sent[-1]["kernels"]
    assert len(found) == LISTED and found[0][0] == f"k{LISTED + 4}"


def test_events_without_room_are_counted(
    worker: Any, watch: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "_HELD", 3)
    watch.watch(60, 10)
    for _ in range(5):
        kernel("a", 0.0, 1.0)
    watch._tell()
    assert worker.batched_stream.sent[-1]["left_out"] == 2
    watch._tell()
    assert worker.batched_stream.sent[-1]["left_out"] == 0


def test_transfers_are_told_once_and_only_new_ones(worker: Any, watch: Watched) -> None:
    watch.watch(60, 10)
    worker.transfer_incoming_log.append(transfer(5))
    worker.transfer_outgoing_log.append(transfer(7))
    watch._tell()
    spans = worker.batched_stream.sent[-1]["spans"]
    assert {(span[1], span[5]) for span in spans} == {("receive", 5), ("send", 7)}
    watch._tell()
    assert worker.batched_stream.sent[-1]["spans"] == []


def test_counters_are_told_where_they_changed(worker: Any, watch: Watched) -> None:
    watch.watch(60, 10)
    watch._tell()
    assert ["counters" in message for message in worker.batched_stream.sent] == [True, False]
    watch.watch(60, 10, again=True)
    watch._tell()
    assert "counters" in worker.batched_stream.sent[-1]


def test_ends_when_nobody_looks_any_more(worker: Any, watch: Watched) -> None:
    watch.watch(-1.0, 10)
    assert events.active == () and worker.batched_stream.sent == []
    watch.watch(60, 10)
    assert len(worker.batched_stream.sent) == 1


def test_ends_with_the_connection(worker: Any, watch: Watched) -> None:
    watch.watch(60, 10)
    worker.batched_stream.closed = True
    watch._tell()
    assert events.active == ()
