"""What explaining costs: ``python -m tests.benchmarks.explain [--chunks 10000] [--repeat 5]``.

For programs of so many chunks: the time of `gpusched.explain`, the part of it that is dask's own
optimisation of the graph, and the kinds of tasks that were gone through. And what noting the call
site costs for each array that is made.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import dask.array as da
from dask.array.optimization import optimize

import gpusched
from gpusched.machine import machine
from tests.benchmarks import report

SIDE = 64
"""Elements along a chunk's side."""


def numbers(chunks: int) -> da.Array:
    """Return an array of so many chunks, which are there, and of one chunk's memory."""
    across = round(chunks**0.5)
    return da.ones((across * SIDE, across * SIDE), chunks=SIDE).persist(scheduler="sync")


def chain(chunks: int) -> da.Array:
    """Return ten operations on two arrays."""
    x, y = numbers(chunks), numbers(chunks) * 1.5
    return ((x - y) * 2 + da.exp(-x) * y) ** 2 / (1 + x) + y


def total(chunks: int) -> da.Array:
    """Return a sum over all chunks."""
    x = numbers(chunks)
    return (((x - 0.5) * 3) ** 2).sum()


def random_numbers(chunks: int) -> da.Array:
    """Return a chain on random numbers, each chunk of which has a seed of its own."""
    across = round(chunks**0.5)
    x = da.random.default_rng(0).random((across * SIDE, across * SIDE), chunks=SIDE)
    return (x - 0.5) * 3 + 1


def standardised(chunks: int) -> da.Array:
    """Return an array less its mean, by its standard deviation, along an axis."""
    x = numbers(chunks)
    return (x - x.mean(axis=0)) / x.std(axis=0)


PROGRAMS: dict[str, Callable[[int], da.Array]] = {
    "ten operations": chain,
    "sum": total,
    "random numbers": random_numbers,
    "standardised": standardised,
}


def seconds(call: Callable[[], Any]) -> float:
    """Return the wall time of a call, with what went before collected."""
    gc.collect()
    started = perf_counter()
    call()
    return perf_counter() - started


def row(name: str, program: da.Array, repeat: int) -> str:
    """Return one line of the table."""
    found = gpusched.explain(program)
    explained, optimised = [], []
    for _ in range(repeat):
        explained.append(seconds(lambda: gpusched.explain(program)))
        keys = program.__dask_keys__()
        optimised.append(seconds(lambda keys=keys: optimize(program.dask, keys)))  # type: ignore[misc]
    totals = found.totals
    kinds = sum(stage.kinds for stage in found.stages)
    return (
        f"| {name} | {totals.tasks_before:,} | {totals.tasks_after:,} | {kinds} | "
        f"{len(found.kernels)} | {median(explained):.2f} s | {min(explained):.2f} s | "
        f"{median(optimised):.2f} s |"
    )


def noting(repeat: int) -> tuple[float, float]:
    """Return the microseconds that making an array takes, without and with its call site noted."""
    x = da.ones((10, 10), chunks=5)

    def make() -> None:
        for _ in range(300):
            x + 1

    plain, noted = [], []
    for _ in range(repeat):
        plain.append(seconds(make) / 300)
        with gpusched.enable():
            noted.append(seconds(make) / 300)
    return 1e6 * median(plain), 1e6 * median(noted)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.explain")
    parser.add_argument("--chunks", type=int, default=10_000, help="default 10000")
    parser.add_argument("--repeat", type=int, default=5, help="timings of each (default 5)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.explain", arguments), end="\n\n", flush=True)
    print(f"profile of this machine: measured in {seconds(lambda: machine(again=True)):.2f} s\n")
    print("| program | tasks built | run | kinds | kernels | explain, median | best | dask alone |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, build in PROGRAMS.items():
        with gpusched.enable():
            program = build(options.chunks)
        print(row(name, program, options.repeat), flush=True)
    plain, noted = noting(options.repeat)
    print(f"\nmaking an array: {plain:.0f} us, with its call site noted {noted:.0f} us")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
