"""Time against the size of chunks, and the choice: `python -m tests.benchmarks.chunks --help`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median
from time import perf_counter

import dask
import dask.array as da
import numpy as np

from gpusched import enable
from gpusched.chunking import choose
from tests.benchmarks import report

SIZES = [1 << k for k in range(18, 29)]
"""Bytes of a chunk: from 0.25 to 256 MiB."""


def black_scholes(a: da.Array, b: da.Array, c: da.Array) -> da.Array:
    """Return prices of calls, with the normal distribution's tanh form (W1)."""
    spot, strike, time = a + 0.5, b + 0.5, c + 0.1
    spread = 0.3 * da.sqrt(time)
    first = (da.log(spot / strike) + 0.06 * time) / spread
    second = first - spread
    return spot * _normal(first) - strike * da.exp(-0.015 * time) * _normal(second)


def _normal(x: da.Array) -> da.Array:
    return 0.5 * (1 + da.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def clipped(a: da.Array, b: da.Array, c: da.Array) -> da.Array:
    """Return ``clip(((a + b) * c - a) / 2)`` (W2)."""
    return da.clip(((a + b) * c - a) / 2, 0.1, 0.7)


def squares(a: da.Array, b: da.Array, c: da.Array) -> da.Array:
    """Return the sum of ``((a - b) * c) ** 2`` (W3)."""
    return (((a - b) * c) ** 2).sum()


PROGRAMS: dict[str, Callable[..., da.Array]] = {
    "Black-Scholes": black_scholes,
    "clip": clipped,
    "square-sum": squares,
}


def timings(elements: int, rounds: int) -> dict[tuple[int, str], float]:
    """Return the median seconds by bytes of a chunk and program; sizes take turns."""
    rng = np.random.default_rng(0)
    arrays = [rng.random(elements) for _ in range(3)]
    sizes = [size for size in SIZES if size <= arrays[0].nbytes]
    found: dict[tuple[int, str], list[float]] = {}
    for number in range(rounds + 1):
        for size in random.Random(number).sample(sizes, len(sizes)):
            chunked = [da.from_array(array, chunks=size // 8) for array in arrays]
            for name, program in PROGRAMS.items():
                seconds = _seconds(program(*chunked))
                if number:  # the first compiles
                    found.setdefault((size, name), []).append(seconds)
    return {key: median(each) for key, each in found.items()}


def _seconds(array: da.Array) -> float:
    start = perf_counter()
    array.persist()
    return perf_counter() - start


def table(found: dict[tuple[int, str], float], chosen: int) -> list[str]:
    """Return the lines of a table in Markdown: seconds over those of the best size."""
    best = {name: min(s for (_, n), s in found.items() if n == name) for name in PROGRAMS}
    lines = ["| chunk | " + " | ".join(PROGRAMS) + " |", "| --- |" + " --- |" * len(PROGRAMS)]
    for size in sorted({size for size, _ in found}):
        label = f"{size / 2**20:g} MiB"
        cells = [f"{found[size, name] / best[name]:.2f}" for name in PROGRAMS]
        mark = f"**{label}, chosen**" if size == chosen else label
        lines.append(f"| {mark} | " + " | ".join(cells) + " |")
    milliseconds = [f"{best[name] * 1e3:.0f} ms" for name in PROGRAMS]
    return [*lines, "| best | " + " | ".join(milliseconds) + " |"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.chunks", description=__doc__)
    parser.add_argument("--elements", type=int, default=1 << 25, help="of each of three arrays")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--unfused", action="store_true", help="time plain dask")
    arguments = parser.parse_args()
    with dask.config.set(scheduler="threads"), nullcontext() if arguments.unfused else enable():
        choice = choose()
        found = timings(arguments.elements, arguments.rounds)
    print(report.header("tests.benchmarks.chunks", sys.argv[1:]))
    print(f"- chosen: {choice}\n\nTime over that of the best size:\n")
    print("\n".join(table(found, choice.nbytes)))


if __name__ == "__main__":
    main()
