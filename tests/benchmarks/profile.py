"""What a profile costs: ``python -m tests.benchmarks.profile [--repeat 15] [--cluster]``.

Programs run with and without a profile in turns, in one process; the overhead is the ratio of the
medians, of the wall time, and of this process's processor time, which others on the machine disturb
less. What beginning and ending a profile take is told apart, since it does not grow with the
program but for the events that are gathered.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, process_time
from typing import Any

import dask
import dask.array as da
import numpy as np

import gpusched
from tests.benchmarks import report

DISTINCT = 8
"""Arrays in memory that the chunks are taken from."""


def chain(chunks: int, elements: int) -> da.Array:
    """Return five operations and a sum on so many chunks."""
    parts = [da.from_array(np.random.default_rng(k).random(elements)) for k in range(DISTINCT)]
    parts = list(dask.persist(*parts))
    x = da.concatenate([parts[k % DISTINCT] for k in range(chunks)])
    return (((x - 0.5) * 3 + x) / (x + 1)).sum()


@dataclass
class Timings:
    """Seconds of one program's runs."""

    plain: list[float] = field(default_factory=list)
    profiled: list[float] = field(default_factory=list)
    plain_processor: list[float] = field(default_factory=list)
    profiled_processor: list[float] = field(default_factory=list)
    around: list[float] = field(default_factory=list)
    """Beginning and ending the profile."""
    events: int = 0


def timed(program: da.Array) -> tuple[float, float]:
    """Run a program, and return its wall time and this process's processor time in seconds."""
    wall, processor = perf_counter(), process_time()
    program.compute()
    return perf_counter() - wall, process_time() - processor


def run(program: da.Array, timings: Timings, profiled: bool) -> None:
    """Run a program once."""
    gc.collect()
    if not profiled:
        wall, processor = timed(program)
        timings.plain.append(wall)
        timings.plain_processor.append(processor)
        return
    before = perf_counter()
    with gpusched.profile() as found:
        wall, processor = timed(program)
    timings.profiled.append(wall)
    timings.profiled_processor.append(processor)
    timings.around.append(perf_counter() - before - wall)
    timings.events = len(found.timeline.spans)


def measure(program: da.Array, repeat: int) -> Timings:
    """Return the timings of a program, with and without a profile in turns."""
    timings = Timings()
    for _ in range(3):
        program.compute()
    for k in range(repeat):
        for profiled in (False, True) if k % 2 else (True, False):
            run(program, timings, profiled)
    return timings


def row(name: str, timings: Timings) -> str:
    """Return one line of the table."""
    plain, profiled = 1e3 * median(timings.plain), 1e3 * median(timings.profiled)
    least = min(timings.profiled) / min(timings.plain) - 1
    processor = median(timings.profiled_processor) / median(timings.plain_processor) - 1
    return (
        f"| {name} | {plain:.0f} ms | {profiled:.0f} ms | {profiled / plain - 1:+.1%} | "
        f"{least:+.1%} | {processor:+.1%} | {timings.events:,} | "
        f"{1e3 * median(timings.around):.0f} ms |"
    )


@contextlib.contextmanager
def scheduler(cluster: bool) -> Iterator[Any]:
    """Choose where programs run."""
    if not cluster:
        with dask.config.set(scheduler="threads"):
            yield
        return
    from distributed import Client

    with gpusched.Cluster(gpus=0) as started, Client(started):
        yield


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.profile")
    parser.add_argument("--repeat", type=int, default=15, help="runs of each (default 15)")
    parser.add_argument("--chunks", type=int, default=1000, help="of each program (default 1000)")
    parser.add_argument("--cluster", action="store_true", help="on worker processes")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.profile", arguments), end="\n\n", flush=True)
    print("| chunks | plain | profiled | overhead | of the best | processor | spans | around |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with scheduler(options.cluster), gpusched.enable():
        for elements in (1_000_000, 10_000):
            program = chain(options.chunks, elements)
            timings = measure(program, options.repeat)
            print(row(f"{options.chunks:,} of {elements:,} elements", timings), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
