"""Launches on a device, timed by marks in its stream: here a device that is told how long."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from gpusched import events
from gpusched.backends.devices import Marks
from gpusched.plan import tiers, timing
from gpusched.profiling import memory_bandwidth
from gpusched.store import statistics, unfused
from gpusched.store.handles import Handle


@dataclass
class Stream:
    """A device's stream, whose clock is far from the CPU's."""

    clock: float = 1e6

    def mark(self) -> float:
        return self.clock

    def launch(self, seconds: float) -> SimpleNamespace:
        def call(*arguments: Any) -> None:
            self.clock += seconds

        marks = Marks(self.mark, lambda mark: True, lambda begin, end: end - begin)
        device = SimpleNamespace(name="cuda", marks=marks)
        return SimpleNamespace(device=device, kernel=SimpleNamespace(call=call), name="add",
                               steps=(3,), bytes_read=60, bytes_written=20)  # fmt: skip


def test_lengths_are_the_devices_and_places_end_with_the_wait() -> None:
    stream = Stream()
    recording = events.start("marks")
    try:
        timing.call(stream.launch(0.25), ())
        stream.clock += 0.5
        timing.call(stream.launch(1.0), ())
        assert recording.events == []
        before = perf_counter()
        timing.resolve()
        after = perf_counter()
        timing.resolve()
    finally:
        events.stop("marks")
    first, second = events.taken(recording)
    assert before <= second.end <= after
    assert second.end - second.start == pytest.approx(1.0)
    assert first.end - first.start == pytest.approx(0.25)
    assert second.start - first.end == pytest.approx(0.5)
    assert (first.nbytes, first.about) == (80, ("cuda", (3,)))


class Marked:
    """A device's stream that lies behind: it has passed the marks that have been let through."""

    def __init__(self) -> None:
        self.issued = itertools.count()
        self.gone = -1
        marks = Marks(lambda: next(self.issued), lambda mark: mark <= self.gone,
                      lambda begin, end: (end - begin) / 8)  # fmt: skip
        self.device = SimpleNamespace(marks=marks, can=SimpleNamespace(host_memory=False))

    def run(self) -> None:
        """Do without a kernel for once."""
        kernel: Any = SimpleNamespace(name="late")
        kernels = (Handle(kernel, lambda: None, lambda: pytest.fail("it is to stay uncompiled")),)
        with tiers.Unfused(kernels, 1, "", self.device):  # type: ignore[arg-type]
            pass


def _counted() -> tuple[int, int, int, float]:
    found = statistics.statistics()
    launches, microseconds = found.unfused_launches["late"], found.unfused_microseconds["late"]
    return found.unfused_tasks, launches, microseconds, found.unfused_seconds


def test_runs_without_kernels_are_counted_at_once_and_timed_when_the_device_has_passed() -> None:
    stream = Marked()
    statistics.reset_statistics()
    for _ in range(3):
        stream.run()
    assert _counted() == (3, 3, 0, 0.0)
    stream.gone = 3  # the last mark of the second
    stream.run()
    assert _counted() == (4, 4, 250_000, 0.25)
    stream.gone = 100
    stream.run()
    assert _counted() == (5, 5, 625_000, 0.625)
    assert not tiers._issued


def test_threads_time_each_run_once() -> None:
    stream = Marked()
    statistics.reset_statistics()
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(stream.run) for _ in range(400)]:
            done.result()
            stream.gone += 1
    stream.gone = 10_000
    stream.run()
    tasks, launches, _, seconds = _counted()
    assert (tasks, launches) == (401, 401)
    assert not tiers._issued
    assert seconds >= 401 / 8


def test_a_device_that_fails_leaves_nothing_running() -> None:
    def fail() -> None:
        raise MemoryError("the device has failed")

    stream = Marked()
    stream.device.marks = Marks(fail, lambda mark: True, lambda begin, end: 0.0)
    with pytest.raises(MemoryError, match="the device has failed"):
        stream.run()
    assert unfused.running._tasks == 0


class Cupy:
    """As much of CuPy as measuring a copy takes; copies last 2 ms, but for the third: 1 ms."""

    OutOfMemoryError = MemoryError

    def __init__(self, full: bool = False) -> None:
        self.full = full
        self.copies = 0
        self.clock = 0.0
        self.cuda = SimpleNamespace(
            Event=self._event,
            get_elapsed_time=lambda begin, end: end.at - begin.at,
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
        )

    def _event(self) -> Any:
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.clock)
        return event

    def zeros(self, size: int, dtype: str) -> bytes:
        if self.full:
            raise MemoryError
        return b""

    def empty_like(self, array: Any) -> bytes:
        return b""

    def copyto(self, target: Any, source: Any) -> None:
        self.copies += 1
        self.clock += 1.0 if self.copies == 3 else 2.0


@pytest.mark.parametrize("full", [False, True])
def test_bandwidth_of_a_gpu_is_that_of_its_fastest_copy(
    full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", Cupy(full))
    memory_bandwidth._copied.cache_clear()
    try:
        found = memory_bandwidth.limit_of("cuda")
    finally:
        memory_bandwidth._copied.cache_clear()
    if full:
        assert found is None
    else:
        assert found is not None
        assert found.one == found.all == pytest.approx(2 * (256 << 20) / 1e-3)
