"""Graphs of very many tiny tasks, end to end: `python -m tests.benchmarks.tiny_tasks --help`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import dask
import numpy as np

from gpusched import Cluster, disable, enable
from tests.benchmarks import report
from tests.benchmarks.graphs import PROGRAMS

COUNTS = (10_000, 100_000)
SCHEDULERS = ("threads", "cluster")
WORKERS = 2


@dataclass
class Timing:
    """Seconds from `compute` to its result."""

    program: str
    chunks: int
    scheduler: str
    plain: list[float] = field(default_factory=list)
    """With plain dask."""
    fused: list[float] = field(default_factory=list)
    """With gpusched, on the same scheduler."""

    @property
    def ratio(self) -> float:
        """How many times faster gpusched is, in medians."""
        return median(self.plain) / median(self.fused)

    def __str__(self) -> str:
        return (
            f"| {self.program} | {self.chunks:,} | {self.scheduler} | {median(self.plain):.2f} "
            f"| {median(self.fused):.2f} | {self.ratio:.1f} |"
        )


@contextlib.contextmanager
def scheduler(name: str) -> Iterator[None]:
    """Compute with dask's threads, or on a cluster of two worker processes."""
    if name == "threads":
        with dask.config.set(scheduler="threads"):
            yield
        return
    with Cluster(WORKERS, 1, fuse=False) as cluster, cluster.get_client():
        yield


def measure(program: str, chunks: int, where: str, repeat: int) -> Timing:
    """Return the timings of both, which take turns, in the scheduler that is in effect."""
    timing = Timing(program, chunks, where)
    build = PROGRAMS[program]
    for _ in range(repeat):
        with disable():
            seconds, expected = timed(lambda: build(chunks).compute())
            timing.plain.append(seconds)
        with enable():
            seconds, found = timed(lambda: build(chunks).compute())
            timing.fused.append(seconds)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    return timing


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = perf_counter()
    result = run()
    return perf_counter() - start, result


def measure_all(programs: list[str], counts: list[int], schedulers: list[str],
                repeat: int) -> Iterator[Timing]:  # fmt: skip
    """Yield the timings of each program, size and scheduler."""
    for where in schedulers:
        with scheduler(where):
            for program in programs:
                measure(program, 1_000, where, 1)
                for chunks in counts:
                    yield measure(program, chunks, where, repeat)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tiny_tasks",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--chunks", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=["chain", "total"])
    parser.add_argument("--schedulers", nargs="+", choices=SCHEDULERS, default=list(SCHEDULERS))
    parser.add_argument("--repeat", type=int, default=3, help="timings of each (default 3)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.tiny_tasks", arguments), end="\n\n")
    print("| program | chunks | scheduler | dask, s | gpusched, s | ratio |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for each in measure_all(options.programs, options.chunks, options.schedulers, options.repeat):
        print(each, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
