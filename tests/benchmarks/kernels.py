"""A user's kernel against numba by hand and NumPy: `python -m tests.benchmarks.kernels --help`."""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numba
import numpy as np

import gpusched
from tests.benchmarks import report


def logistic(x: Any) -> Any:
    return 1.0 / (1.0 + math.exp(-x))


def blend(x: Any, y: Any) -> Any:
    mean = (x + y) * 0.5
    return mean if mean > 0.0 else x - y


def escape(x: Any, y: Any) -> Any:
    z = 0j
    c = complex(x, y)
    n = 0
    while n < 50 and abs(z) <= 2.0:
        z = z * z + c
        n += 1
    return n


def numpy_logistic(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def numpy_blend(x: Any, y: Any) -> Any:
    mean = (x + y) * x.dtype.type(0.5)
    return np.where(mean > 0, mean, x - y)


def numpy_escape(x: Any, y: Any) -> Any:
    c = x + 1j * y
    z, n = np.zeros_like(c), np.zeros(c.shape, np.int64)
    alive = np.ones(c.shape, bool)
    for _ in range(50):
        alive &= np.abs(z) <= 2.0
        n += alive
        z = np.where(alive, z * z + c, z)
    return n


WORKS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int, int]] = {
    "logistic": (logistic, numpy_logistic, 1, 8 << 20),
    "blend": (blend, numpy_blend, 2, 8 << 20),
    "escape": (escape, numpy_escape, 2, 1 << 18),
}
"""Function, the same in NumPy, number of arrays, elements."""


def by_hand(function: Callable[..., Any], count: int, dtype: np.dtype) -> Callable[..., Any]:
    """Return the loop that one writes with numba: a result allocated, one element at a time."""
    point = numba.njit(function, error_model="numpy")

    def one(x: Any) -> Any:
        out = np.empty(x.size, dtype)
        for i in range(x.size):
            out[i] = point(x[i])
        return out

    def two(x: Any, y: Any) -> Any:
        out = np.empty(x.size, dtype)
        for i in range(x.size):
            out[i] = point(x[i], y[i])
        return out

    return numba.njit(one if count == 1 else two, error_model="numpy")


def measure(name: str, dtype: str, repeat: int) -> dict[str, float]:
    """Return the median seconds of each way, taken in turn in random order."""
    function, with_numpy, count, elements = WORKS[name]
    generator = np.random.default_rng(0)
    arrays = [generator.uniform(-2, 2, elements).astype(dtype) for _ in range(count)]
    kernel = gpusched.kernel(function)
    expected = with_numpy(*arrays)
    ways = {
        "gpusched.kernel": kernel,
        "numba by hand": by_hand(function, count, kernel(*arrays).dtype),
        "NumPy": with_numpy,
    }
    for way in ways.values():
        found = way(*arrays)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps, atol=1e-6)
        else:
            # A step more or less, where rounding decides.
            assert np.mean(found != expected) < 1e-3
    taken: dict[str, list[float]] = {way: [] for way in ways}
    order, shuffler = list(ways), random.Random(0)
    for _ in range(repeat):
        shuffler.shuffle(order)
        for way in order:
            start = perf_counter()
            found = ways[way](*arrays)
            taken[way].append(perf_counter() - start)
            del found
    return {way: median(seconds) for way, seconds in taken.items()}


def overhead(repeat: int) -> float:
    """Return the median seconds of a call on a small array, which only costs."""
    kernel, x = gpusched.kernel(logistic), np.ones(4)
    kernel(x)
    taken = []
    for _ in range(repeat):
        start = perf_counter()
        for _ in range(1000):
            kernel(x)
        taken.append((perf_counter() - start) / 1000)
    return median(taken)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kernels")
    parser.add_argument("--repeat", type=int, default=15, help="timings of each (default 15)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.kernels", arguments))
    print("\n| kernel | dtype | gpusched.kernel | numba by hand / it | NumPy / it |")
    print("| --- | --- | --- | --- | --- |")
    for name in WORKS:
        for dtype in ("float32", "float64"):
            times = measure(name, dtype, options.repeat)
            ours = times["gpusched.kernel"]
            ratios = [times[way] / ours for way in ("numba by hand", "NumPy")]
            print(f"| {name} | {dtype} | {1e3 * ours:.1f} ms | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    print(f"\nA call on 4 elements: {1e6 * overhead(options.repeat):.1f} us.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
