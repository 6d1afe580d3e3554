"""What admission costs where memory is ample: ``python -m tests.benchmarks.memory.cost``.

Two clusters of one worker each, one with admission, run the same tasks in turns. Shown are the
wall time and the processor time per task, of the worker and of all processes (the scheduler and the
client are in this one), and the ratios of neighbouring rounds; processor times say something on a
busy machine, too.

Rounds of their own count the calls, Python's and those of C, that the threads of the worker's and
the scheduler's event loops and of the client make per task, and those of them within admission,
whose number does not depend on the machine; others take the processor time within admission. What
share of all that is says on a busy machine what the ratios cannot.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import dask
import psutil
from distributed import Client, wait

from gpusched import Cluster
from tests.benchmarks import report
from tests.benchmarks.memory.asked import begin_counting, begin_timing, end_counting, spent

LIMIT = "4 GiB"
_COUNTED = 8
"""Rounds in which calls are counted, and as many in which admission is timed."""


def _number(*values: int) -> int:
    return sum(values) + 1


@dataclass
class Place:
    """A cluster, its worker's process, and what its rounds took."""

    client: Client
    process: psutil.Process
    wall: list[float] = field(default_factory=list)
    """Seconds per task."""
    worker: list[float] = field(default_factory=list)
    """Seconds of the worker's process per task."""
    processor: list[float] = field(default_factory=list)
    """Seconds of all processes per task."""
    calls: list[float] = field(default_factory=list)
    """Calls per task."""
    within: list[float] = field(default_factory=list)
    """Calls within admission per task."""

    def count(self, tasks: int) -> None:
        """Run tasks, and note how many calls they took."""
        self.client.run(begin_counting)
        self.client.run_on_scheduler(begin_counting)
        begin_counting()
        self._run(tasks)
        here, there = end_counting(), self.client.run_on_scheduler(end_counting)
        (worker,) = self.client.run(end_counting).values()
        self.calls.append((here[0] + there[0] + worker[0]) / tasks)
        self.within.append(worker[1] / tasks)

    def asked(self, tasks: int) -> float:
        """Run tasks; return the seconds of the worker's processor time in admission per task."""
        self.client.run(spent)
        self._run(tasks)
        return sum(self.client.run(spent).values()) / tasks

    def round(self, tasks: int) -> None:
        """Run tasks, half of which read the results of others, and note what they took."""
        before, here, started = _used(self.process), _used(psutil.Process()), perf_counter()
        self._run(tasks)
        self.wall.append((perf_counter() - started) / tasks)
        self.worker.append((_used(self.process) - before) / tasks)
        self.processor.append(self.worker[-1] + (_used(psutil.Process()) - here) / tasks)

    def _run(self, tasks: int) -> None:
        with self.client.as_current():
            first = self.client.map(_number, range(tasks // 2), pure=False)
            second = self.client.map(_number, first, first[::-1], pure=False)
            wait(second)


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _place(admission: bool) -> Iterator[Place]:
    settings: dict[str, Any] = {"gpusched.memory.admission": admission}
    with (
        dask.config.set(settings),
        Cluster(1, 2, gpus=0, memory_limit=LIMIT, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        (pid,) = client.run(os.getpid).values()
        yield Place(client, psutil.Process(pid))


def main(arguments: list[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tests.benchmarks.memory.cost")
    parser.add_argument("--tasks", type=int, default=1000, help="of a round")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.memory.cost", arguments), "\n")
    with _place(False) as without, _place(True) as admitted:
        places = [without, admitted]
        for count in range(options.rounds + 1):
            for place in places:
                place.round(options.tasks)
            places.reverse()
            if count == 0:  # The first round loads modules.
                for place in places:
                    place.wall.clear()
                    place.worker.clear()
                    place.processor.clear()
        for _ in range(_COUNTED):
            for place in places:
                place.count(options.tasks)
        admitted.client.run(begin_timing)
        asked = median(admitted.asked(options.tasks) for _ in range(_COUNTED))
    print("| per task | without | admission | ratio, quartiles |\n| --- | --- | --- | --- |")
    for name in ("wall", "worker", "processor"):
        print(_row(name, getattr(without, name), getattr(admitted, name)))
    shares = [
        ("calls", median(admitted.within), median(without.calls), ""),
        ("processor time", 1e6 * asked, 1e6 * median(without.processor), " us"),
    ]
    print("\n| per task | within admission | all, without it | share |\n| --- | --- | --- | --- |")
    for name, part, whole, unit in shares:
        print(f"| {name} | {part:.1f}{unit} | {whole:.0f}{unit} | {part / whole:.2%} |")
    return 0


def _row(name: str, without: list[float], admitted: list[float]) -> str:
    ratios = [b / a for a, b in zip(without, admitted, strict=True)]
    shown = [f"{1e6 * median(each):.0f} us" for each in (without, admitted)]
    return f"| {name} | {' | '.join(shown)} | {', '.join(f'{q:.3f}' for q in quantiles(ratios))} |"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
