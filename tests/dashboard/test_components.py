"""Plots of what a scheduler knows, which is made up here: GPUs, many workers, sources, time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpusched.dashboard.components.breaks import Breaks
from gpusched.dashboard.components.compiling import Compiling
from gpusched.dashboard.components.figures import SHOWN
from gpusched.dashboard.components.fusedtasks import FusedTasks
from gpusched.dashboard.components.kernelbars import KernelBars
from gpusched.dashboard.components.kerneltable import KernelTable
from gpusched.dashboard.components.memory import CommittedByWorker, Memory
from gpusched.dashboard.components.spill import Spill
from gpusched.dashboard.components.timeline import WINDOW, Timeline
from gpusched.dashboard.components.utilization import Utilization
from gpusched.dashboard.components.waiting import Waiting
from gpusched.dashboard.fusion_counts import Fusion
from gpusched.dashboard.launches import Launches
from tests.dashboard.test_device_reports import gpu, worker


class Observer:
    """Knows what the test says."""

    def __init__(self) -> None:
        self.launches = Launches()
        self.fusion = Fusion()
        self.spans: list[Any] = []
        self.left_out = 0
        self.sources: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, str]] = []

    def look(self) -> None:
        """Ask nobody."""

    def ask_source(self, name: str, device: str) -> None:
        self.asked.append((name, device))


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def scheduler(observer: Observer) -> Any:
    return SimpleNamespace(workers={}, plugins={"gpusched-dashboard": observer})


def legend(plot: Any) -> list[str]:
    return [item.label.value for item in plot.root.legend[0].items if item.visible]


def test_nothing_is_there_yet(scheduler: Any) -> None:
    told = []
    for kind in (Memory, CommittedByWorker, Utilization, Spill, FusedTasks, Timeline):
        plot: Any = kind(scheduler)
        plot.update()
        told.append(plot.root.title.text)
    assert told == [
        "Memory by tier: no worker is there yet",
        "Memory for tasks: no worker is there yet",
        "Utilisation: no worker has reported it yet",
        "Spilled, by device: nothing so far",
        "Tasks before and after fusion: no fused array function was sent yet",
        "Timeline: nothing has happened since this was opened",
    ]
    bars, stops, table = KernelBars(scheduler), Breaks(scheduler), KernelTable(scheduler)
    for each in (bars, stops, table):
        each.update()
    assert bars.times.title.text == "Time in kernels: no kernels have run yet"
    assert stops.title.text == "Graph breaks: nothing has run yet"
    assert table.text.text.startswith("No kernels have run yet")


def test_gpus_have_their_tiers(scheduler: Any) -> None:
    memory, used, spill = Memory(scheduler), Utilization(scheduler), Spill(scheduler)
    scheduler.workers["a"] = worker(0)
    memory.update()
    assert not [label for label in legend(memory) if label.startswith("GPU")]
    scheduler.workers["b"] = worker(1, gpu(device_bytes=250, disk_bytes=1 << 20))
    for plot in (memory, used, spill):
        plot.update()
    assert "GPU: arrays" in legend(memory)
    assert memory.root.title.text.startswith("Memory by tier: 700 B on GPUs, ")
    assert memory.source.data["device"] == [0, 600]
    assert memory.root.y_range.factors == ["1  GPU-1b2c3d4e", "0  CPU"]
    assert used.source.data["used"] == [0.75, 0.4]
    assert used.root.title.text == "Utilisation: 57% on average"
    told = {"between_devices_bytes": 3 << 20, "through_host_bytes": 1 << 10}
    scheduler.workers["b"] = worker(1, {**gpu(), "kernels": told})
    memory.update()
    assert memory.root.title.text.endswith("; sent 3.00 MiB GPU to GPU, 1.00 kiB through hosts")
    assert spill.source.data["label"] == ["CPU of 10.0.0.1", "GPU-1b2c3d4e"]
    assert spill.source.data["disk"] == [50, 1 << 20]


def test_what_is_committed_is_shown_with_what_tasks_wait_for(scheduler: Any) -> None:
    committed, waiting = CommittedByWorker(scheduler), Waiting(scheduler)
    told = {
        "limit_bytes": 900, "held_bytes": 400, "in_flight_bytes": 30, "reserved_bytes": 200,
        "unmanaged_bytes": 100, "waiting": 3, "reason": "running tasks", "waited": 7,
        "wait_seconds": 1.5, "in_pieces": 1, "refused": 2,
    }  # fmt: skip
    scheduler.workers |= {"a": worker(0, {"memory": told}), "b": worker(1)}
    committed.update()
    waiting.update()
    assert committed.root.title.text == (
        "Memory for tasks: 800 B unmanaged, 700 B results, 30 B results being received, "
        "200 B reserved for running tasks"
    )
    assert committed.source.data["reserved"] == [200, 0]
    assert committed.source.data["limit"] == [900, 4000]
    assert waiting.title.text == "Waiting for memory: 3 tasks"
    rows = waiting.table.source.data
    assert rows["reason"] == [
        "running tasks", "tasks start at once: gpusched.memory.admission is off"
    ]  # fmt: skip
    assert (rows["waited"], rows["refused"]) == ([7, 0], [2, 0])


def test_only_the_first_of_many_workers_are_drawn(scheduler: Any) -> None:
    scheduler.workers |= {number: worker(number) for number in range(3 * SHOWN)}
    memory = Memory(scheduler)
    memory.update()
    assert len(memory.source.data["label"]) == SHOWN == len(memory.root.y_range.factors)
    assert memory.root.title.text.endswith(f"the first {SHOWN} of {3 * SHOWN}")


def kernels(observer: Observer, **seconds: float) -> None:
    told = [(name, "cpu", 1, each, 10**9) for name, each in seconds.items()]
    observer.launches.add(("host", 1), told, {"cpu": sum(seconds.values())})


def test_bars_are_the_longest_kernels(scheduler: Any, observer: Observer) -> None:
    bars = KernelBars(scheduler)
    kernels(observer, **{f"k{number}": 1.0 + number for number in range(20)})
    bars.update()
    assert bars.source.data["name"][:2] == ["k19", "k18"]
    assert len(bars.source.data["name"]) == 12
    assert "not measured yet" in bars.rates.title.text
    observer.launches.limits["host", "cpu"] = 2e9, 4e9
    bars.update()
    assert bars.rates.title.text == "Bytes per second"
    assert set(bars.source.data["limit"]) == {2.0}


def test_choice_follows_its_kernel_through_the_table(scheduler: Any, observer: Observer) -> None:
    table = KernelTable(scheduler)
    kernels(observer, first=2.0, second=1.0)
    table.update()
    assert table.text.text.startswith("Click a kernel")
    table.source.selected.indices = [1]
    assert observer.asked == [("second", "cpu")]
    assert "asking a worker" in table.text.text
    kernels(observer, second=5.0)
    observer.sources["second", "cpu"] = "def point(a): ..."
    table.update()
    assert table.source.data["name"] == ["second", "first"]
    assert table.source.selected.indices == [0]
    assert table.text.text == "def point(a): ..."
    assert observer.asked == [("second", "cpu")]


def test_kernel_without_source_says_why(scheduler: Any, observer: Observer) -> None:
    table = KernelTable(scheduler)
    kernels(observer, mine=2.0)
    table.update()
    table.source.selected.indices = [0]
    observer.sources["mine", "cpu"] = ""
    table.update()
    assert "written by hand" in table.text.text


def test_stops_have_remedies(scheduler: Any, observer: Observer) -> None:
    observer.fusion.tell(
        ("host", 1),
        {"tasks": 3, "fused_tasks": 0, "launches": 0, "kernels": [],
         "breaks": [["sum", "SMALL_CHUNKS", "small chunks", 2],
                    ["f", "NO_KERNEL", "no kernel for this function", 1]]},
    )  # fmt: skip
    stops = Breaks(scheduler)
    stops.update()
    assert stops.title.text == "3 graph breaks, for these reasons"
    assert stops.source.data["remedy"][0].startswith("make chunks larger")


def test_kernels_that_are_compiled_are_shown_with_what_they_cost(
    scheduler: Any, observer: Observer
) -> None:
    rest = {"tasks": 9, "fused_tasks": 0, "launches": 0, "kernels": [], "breaks": []}
    for process, compiling in ((1, [["add", 0.5, False]]),
                               (2, [["add", 0.25, False], ["mul", 0.5, True]])):  # fmt: skip
        observer.fusion.tell(("host", process), rest | {"unfused_tasks": 3, "compiling": compiling})
    shown = Compiling(scheduler)
    shown.update()
    assert shown.title.text == "2 kernels to be compiled; 6 tasks ran without theirs so far"
    data = shown.source.data
    assert list(zip(data["kernel"], data["seconds"], data["processes"], strict=True)) == [
        ("mul", 0.5, 1), ("add", 0.75, 2)
    ]  # fmt: skip
    assert data["when"] == ["beside tasks", "in idle time"]
    observer.fusion.end(("host", 2))
    shown.update()
    assert shown.title.text == "1 kernel to be compiled; 6 tasks ran without theirs so far"
    assert shown.source.data["seconds"] == [0.5]


def span(kind: str, start: float, end: float, thread: str = "ThreadPoolExecutor-1_0") -> Any:
    return "0", (kind, "name", start, end, thread, 8)


def test_timeline_follows_until_it_is_moved(scheduler: Any, observer: Observer) -> None:
    timeline = Timeline(scheduler)
    observer.spans = [span("kernel", 0.0, 1.0), span("transfer", 99.0, 100.0, "receive"),
                      span("spill", 99.0, 99.5, "gpusched-mover_0")]  # fmt: skip
    observer.left_out = 7
    timeline.update()
    assert timeline.root.y_range.factors == ["0: spilling", "0: received"]
    assert "7 shorter ones were left out" in timeline.root.title.text
    assert (timeline.root.x_range.start, timeline.root.x_range.end) == (1e3 * (100 - WINDOW), 1e5)
    observer.spans.append(span("kernel", 109.0, 110.0))
    timeline.update()
    assert timeline.root.x_range.end == 1.1e5
    timeline.root.x_range.end = 5.0  # As somebody zooms.
    observer.spans.append(span("kernel", 119.0, 120.0))
    timeline.update()
    assert timeline.root.x_range.end == 5.0
    timeline._follow(None)
    timeline.update()
    assert timeline.root.x_range.end == 1.2e5


def test_timeline_shows_the_busiest_rows(scheduler: Any, observer: Observer) -> None:
    timeline = Timeline(scheduler)
    observer.spans = [
        span("kernel", 0.0, 1.0 + number / 100, f"ThreadPoolExecutor-1_{number}")
        for number in range(SHOWN + 5)
    ]
    timeline.update()
    assert len(timeline.root.y_range.factors) == SHOWN == len(timeline.source.data["lane"])
    assert "0: thread 0" not in timeline.root.y_range.factors
