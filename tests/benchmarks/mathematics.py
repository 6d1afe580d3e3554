"""Vectorised functions against others': `python -m tests.benchmarks.mathematics --help`.

One thread, arrays that stay in the processor's caches, so that it is the functions that are timed;
by the processor's time rather than the clock's, which other processes use too.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numba
import numpy as np
import scipy.special
from numba import types

from gpusched.backends import scalar_math
from gpusched.backends.cpu import pipeline
from gpusched.vectormath import FEWER_STEPS, FUNCTIONS
from tests.benchmarks import report

ELEMENTS = 1 << 17
AT_ONCE = 4
"""Vectors that the loop of a kernel with functions computes at once."""
RANGES = {
    "arccos": (-1, 1), "arccosh": (1, 50), "arcsin": (-1, 1), "arctanh": (-1, 1), "erfc": (-3, 9),
    "log": (0.01, 50), "log10": (0.01, 50), "log1p": (-0.9, 50), "log2": (0.01, 50),
    "power": (0.01, 20),
}  # fmt: skip
"""Where arguments are drawn from; -20 to 20 for other functions."""
Ways = dict[str, Callable[[], Any]]


def ours(name: str, arguments: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    """Return a call of the loop that kernels have."""
    return _loop(FUNCTIONS[name].function, arguments, out)


def fast(name: str, arguments: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    """Return the same in the fast mode; `AttributeError` where that has no function of its own."""
    if name not in FEWER_STEPS:
        raise AttributeError(name)
    return _loop(FEWER_STEPS[name].function, arguments, out)


def c_library(name: str, arguments: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    """Return a call of the loop that numba makes of Python's `math`."""
    function = scalar_math.libm_function(name)
    return _loop(
        numba.njit(function) if hasattr(function, "__code__") else function, arguments, out
    )


def _loop(function: Any, arguments: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    array = types.Array(numba.from_dtype(out.dtype), 1, "C")
    compiled = numba.njit(
        types.void(*[array] * (len(arguments) + 1)),
        error_model="numpy",
        pipeline_class=pipeline(None, AT_ONCE),
    )

    def one(values: Any, out: Any) -> None:
        for i in range(values.size):
            out[i] = function(values[i])

    def two(first: Any, second: Any, out: Any) -> None:
        for i in range(first.size):
            out[i] = function(first[i], second[i])

    call = compiled(one if len(arguments) == 1 else two)
    return lambda: call(*arguments, out)


def with_numpy(name: str, arguments: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    """Return a call of NumPy's or SciPy's function."""
    function = getattr(np, name[:-4], None) or getattr(scipy.special, name[:-4])
    return lambda: function(*arguments, out=out)


def with_jax(name: str, arguments: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    """Return a call of a compiled function of JAX's, which allocates its result."""
    import jax

    jax.config.update("jax_enable_x64", True)
    function = getattr(jax.numpy, name[:-4], None) or getattr(jax.scipy.special, name[:-4])
    compiled, inputs = jax.jit(function), [jax.numpy.asarray(a) for a in arguments]
    return lambda: compiled(*inputs).block_until_ready()


def with_torch(name: str, arguments: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    """Return a call of torch's function."""
    import torch

    torch.set_num_threads(1)
    renamed = {"power": "pow", "cbrt": ""}.get(name[:-4], name[:-4])
    function = getattr(torch, renamed, None) or getattr(torch.special, renamed)
    inputs, result = [torch.from_numpy(a) for a in arguments], torch.from_numpy(out)
    return lambda: function(*inputs, out=result)


OTHERS = {
    "fast": fast,
    "NumPy": with_numpy,
    "C library": c_library,
    "JAX": with_jax,
    "torch": with_torch,
}


def ways(name: str) -> Ways:
    """Return who can compute a function, each with its own result."""
    function, dtype = scalar_math.split(name)
    generator = np.random.default_rng(0)
    low, high = RANGES.get(function, (-20, 20))
    count = 2 if function in scalar_math.BINARY_MATH else 1
    arguments = [generator.uniform(low, high, ELEMENTS).astype(dtype) for _ in range(count)]
    found: Ways = {"ours": ours(name, arguments, np.empty_like(arguments[0]))}
    for way, prepare in OTHERS.items():
        try:
            call = prepare(name, arguments, np.empty_like(arguments[0]))
            call()
        except (ImportError, AttributeError, numba.TypingError):
            continue
        found[way] = call
    return found


def measure(name: str, repeat: int) -> dict[str, float]:
    """Return each one's median of million elements a second, taken in turn in random order."""
    found = ways(name)
    taken: dict[str, list[float]] = {way: [] for way in found}
    order, shuffler = list(found), random.Random(0)
    with np.errstate(all="ignore"):
        for _ in range(repeat):
            shuffler.shuffle(order)
            for way in order:
                found[way]()
                start = process_time()
                found[way]()
                taken[way].append(process_time() - start)
    return {way: ELEMENTS / median(seconds) / 1e6 for way, seconds in taken.items()}


def row(name: str, speeds: dict[str, float]) -> str:
    """Return a line of the table: our speed, and how many times it is the others'."""
    function, dtype = scalar_math.split(name)
    ratios = [f"{speeds['ours'] / speeds[way]:.1f}" if way in speeds else "" for way in OTHERS
              if way != "fast"]  # fmt: skip
    quick = f"{speeds['fast']:.0f}" if "fast" in speeds else ""
    columns = [function, dtype.__name__, f"{speeds['ours']:.0f}", quick, *ratios]
    return f"| {' | '.join(columns)} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.mathematics")
    parser.add_argument("functions", nargs="*", help="such as exp_f32 (default: all)")
    parser.add_argument("--repeat", type=int, default=15, help="timings of each (default 15)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.mathematics", arguments))
    print("\nMillion elements a second, one thread, exact and fast where that has functions of its")
    print("own, and how many times the others' the exact one is:\n")
    columns = ["function", "dtype", "gpusched", *OTHERS]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for name in options.functions or sorted(FUNCTIONS):
        print(row(name, measure(name, options.repeat)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
