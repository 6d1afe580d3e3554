"""Chunk kernels, result buffer included, against the memory limit: `--help` for more."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import dask
import dask.array as da
import numba
import numpy as np
from dask.base import persist

from gpusched import enable
from gpusched.backends.buffer_pool import new_block, pool
from tests.benchmarks import report
from tests.benchmarks.contenders.base import THREADS
from tests.benchmarks.overhead import chunk_task
from tests.benchmarks.works.clip import clip_chain, triples
from tests.benchmarks.works.sums import square_sum

FILLED = 32 << 20
"""Bytes of the buffers that are filled."""

CHUNKS = (1 << 20, 4 << 20, 16 << 20)
"""Elements."""

COLUMNS = 1024
"""Of the matrices whose axes are reduced."""

Calls = dict[str, Callable[[], Any]]


@numba.njit(nogil=True)
def triad(a: Any, b: Any, c: Any, out: Any) -> None:
    """Read three arrays and write one that is there."""
    for i in range(out.size):
        out[i] = a[i] + b[i] * c[i]


@numba.njit(nogil=True, fastmath={"reassoc"})
def read_three(a: Any, b: Any, c: Any) -> Any:
    """Read three arrays and add them up."""
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] + b[i] * c[i]
    return total


@numba.njit(nogil=True, fastmath={"reassoc"})
def read_one(a: Any) -> Any:
    """Read an array and add it up."""
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i]
    return total


def medians(calls: Calls, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the median seconds of each call; they take turns, in another order each round."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    shuffler = random.Random(0)
    for name in [*calls, *calls]:
        calls[name]()
    for _ in range(rounds):
        for name in shuffler.sample(list(calls), len(calls)):
            start = clock()
            result = calls[name]()
            taken[name].append(clock() - start)
            del result
    return {name: median(seconds) for name, seconds in taken.items()}


def fills(rounds: int) -> Iterable[str]:
    """Yield what it costs to write a buffer, by where its memory comes from."""
    shape, dtype = (FILLED,), np.dtype("u1")
    warm = np.zeros(FILLED, "u1")
    found = medians(
        {
            "a buffer that is there": lambda: warm.fill(1),
            "one of the pool, used before": lambda: pool.full(shape, 1, dtype),
            "new memory on huge pages (gpusched)": lambda: new_block(FILLED).fill(1),
            "new memory of NumPy": lambda: np.empty(FILLED, "u1").fill(1),
        },
        rounds,
        thread_time,
    )
    yield from (f"| {name} | {seconds * 1e3:.2f} ms |" for name, seconds in found.items())


def chunk_calls(count: int, dtype: str) -> tuple[Calls, dict[str, str]]:
    """Return the calls for one size of chunk, and the limit that each is compared with."""
    arrays = triples(count, dtype)
    out = np.zeros_like(arrays[0])
    matrix = arrays[0].reshape(-1, COLUMNS)
    whole = [da.from_array(x, chunks=-1) for x in arrays]
    two = da.from_array(matrix, chunks=-1)
    programs = {
        "W2 clip": (clip_chain(da, *whole), "triad"),
        "W3 square-sum": (square_sum(da, *whole), "three read"),
    } | {
        f"W3 {name} axis {axis}": (getattr(two, name)(axis=axis), "one read")
        for name in ("mean", "std")
        for axis in (0, 1)
    }
    calls: Calls = {
        "triad": lambda: triad(*arrays, out),
        "three read": lambda: read_three(*arrays),
        "one read": lambda: read_one(arrays[0]),
    }
    for name, (array, _) in programs.items():
        program, inputs = chunk_task(array)
        calls[name] = partial(program, *inputs)
    return calls, {name: limit for name, (_, limit) in programs.items()}


def kernels(rounds: int) -> Iterable[str]:
    """Yield each work's share of the limit, by dtype and size of the chunk, on one thread."""
    for dtype in ("float32", "float64"):
        for count in CHUNKS:
            calls, limits = chunk_calls(count, dtype)
            found = medians(calls, rounds, thread_time)
            shares = [f"{found[limit] / found[name]:.2f}" for name, limit in limits.items()]
            yield f"| {count >> 20}M {dtype} | {' | '.join(shares)} |"


def run_calls(count: int, dtype: str, chunk: int) -> Calls:
    """Return the calls for whole runs on all cores."""
    arrays = triples(count, dtype)
    out = np.zeros_like(arrays[0])
    threads = ThreadPoolExecutor(THREADS)
    chunked = persist(*(da.from_array(x, chunks=chunk) for x in arrays), scheduler="sync")
    parts = [slice(start, start + chunk) for start in range(0, count, chunk)]

    def limit(function: Callable[..., Any], *given: np.ndarray) -> None:
        list(threads.map(lambda part: function(*(x[part] for x in given)), parts))

    def run(work: Callable[..., Any]) -> Any:
        with enable(), dask.config.set(scheduler="threads", pool=threads):
            return work(da, *chunked).persist()

    return {
        "triad": partial(limit, triad, *arrays, out),
        "three read": partial(limit, read_three, *arrays),
        "W2 clip": partial(run, clip_chain),
        "W3 square-sum": partial(run, square_sum),
    }


def runs(rounds: int, count: int) -> Iterable[str]:
    """Yield the shares of the limit that whole runs on dask's threads reach, graph included."""
    for dtype in ("float32", "float64"):
        for chunk in CHUNKS:
            found = medians(run_calls(count, dtype, chunk), rounds, perf_counter)
            shares = (
                found["triad"] / found["W2 clip"],
                found["triad"] / found["W3 square-sum"],
                found["three read"] / found["W3 square-sum"],
            )
            texts = " | ".join(f"{share:.2f}" for share in shares)
            yield f"| {chunk >> 20}M {dtype} | {texts} |"


def table(heading: str, columns: Iterable[str], lines: Iterable[str]) -> None:
    """Print a table under its heading, each line as soon as it is measured."""
    names = list(columns)
    print(f"\n{heading}:\n\n| {' | '.join(names)} |\n|{' -- |' * len(names)}", flush=True)
    for line in lines:
        print(line, flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.buffers")
    parser.add_argument("--repeat", type=int, default=21, help="timings of each (default 21)")
    parser.add_argument("--elements", type=int, default=64 << 20, help="of whole runs")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.buffers", arguments), flush=True)
    table(
        f"Writing {FILLED >> 20} MiB, one thread's own time",
        ["where to", "median"],
        fills(options.repeat),
    )
    table(
        "One chunk, a known program, its result's buffer included, one thread's own time: shares "
        "of a triad (W2) and of reading the same arrays (W3), by numba, on memory that is there",
        ["chunk", *chunk_calls(CHUNKS[0], "float32")[1]],
        kernels(options.repeat),
    )
    table(
        f"Whole runs of {options.elements:,} elements on {THREADS} threads, results kept in "
        "chunks: shares of the same loops on the same chunks and threads",
        ["chunk", "W2 of triad", "W3 square-sum of triad", "W3 square-sum of reading"],
        runs(options.repeat, options.elements),
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
