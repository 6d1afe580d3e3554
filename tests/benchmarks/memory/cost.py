"""What admission costs where memory is ample: ``python -m tests.benchmarks.memory.cost``.

Two clusters of one worker each, one with admission, run the same tasks in turns. Shown are the
wall time and the processor time per task, of the worker and of all processes (the scheduler and the
client are in this one), and the ratios of neighbouring rounds; processor times say something on a
busy machine, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import quantiles
from time import perf_counter
from typing import Any

import dask
import psutil
from distributed import Client, wait

from gpusched import Cluster
from tests.benchmarks import report

LIMIT = "4 GiB"


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

    def round(self, tasks: int) -> None:
        """Run tasks, half of which read the results of others, and note what they took."""
        before, here, started = _used(self.process), _used(psutil.Process()), perf_counter()
        with self.client.as_current():
            first = self.client.map(_number, range(tasks // 2), pure=False)
            second = self.client.map(_number, first, first[::-1], pure=False)
            wait(second)
        self.wall.append((perf_counter() - started) / tasks)
        self.worker.append((_used(self.process) - before) / tasks)
        self.processor.append(self.worker[-1] + (_used(psutil.Process()) - here) / tasks)
        del first, second


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
    print("| per task | without | admission | ratio, quartiles |\n| --- | --- | --- | --- |")
    for name in ("wall", "worker", "processor"):
        print(_row(name, getattr(without, name), getattr(admitted, name)))
    return 0


def _row(name: str, without: list[float], admitted: list[float]) -> str:
    ratios = [b / a for a, b in zip(without, admitted, strict=True)]
    shown = [f"{1e6 * quantiles(each)[1]:.0f} us" for each in (without, admitted)]
    return f"| {name} | {' | '.join(shown)} | {', '.join(f'{q:.3f}' for q in quantiles(ratios))} |"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
