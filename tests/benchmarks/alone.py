"""Operations that stand alone, on large chunks: ``python -m tests.benchmarks.alone --help``.

Each is a whole dask program of one operation, in turns with plain dask on the same threads. What
NumPy computes as fast has the trait "alone" in `gpusched.emit.operations`.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import dask
import dask.array as da
import numpy as np

import gpusched
from tests.benchmarks import report

UNARY = [
    "exp", "log", "log10", "log1p", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "sqrt", "cbrt", "rint",
    "floor", "absolute", "square", "isfinite",
]  # fmt: skip
BINARY = [
    "add", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "hypot",
    "arctan2", "logaddexp", "maximum", "equal", "logical_and", "copysign", "nextafter", "ldexp",
]  # fmt: skip
REDUCTIONS = ["sum", "prod", "max", "any", "mean", "std", "argmax"]


def programs(x: da.Array, y: da.Array) -> Iterator[tuple[str, Any, tuple[da.Array, ...]]]:
    """Yield the name, the function and the arguments of each program."""
    for name in UNARY:
        yield name, getattr(da, name), (y if name == "arccosh" else x,)
    for name in BINARY:
        yield name, getattr(da, name), (x, y)
    for name in REDUCTIONS:
        yield name, getattr(da, name), (x,)


def seconds(function: Any, arguments: tuple[da.Array, ...]) -> float:
    """Return the wall time of a run; its result is released after the clock has stopped."""
    gc.collect()
    started = perf_counter()
    result = dask.persist(function(*arguments))
    elapsed = perf_counter() - started
    del result
    return elapsed


def row(name: str, dtype: str, function: Any, arguments: tuple[da.Array, ...], repeat: int) -> str:
    """Return one line of the table."""
    with gpusched.enable():
        seconds(function, arguments)
    seconds(function, arguments)
    fused, plain = [], []
    for _ in range(repeat):
        with gpusched.enable():
            fused.append(seconds(function, arguments))
        plain.append(seconds(function, arguments))
    ours, theirs = median(fused), median(plain)
    return f"| {name} {dtype} | {1e3 * ours:.1f} | {1e3 * theirs:.1f} | {theirs / ours:.2f} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.alone")
    parser.add_argument("--elements", type=int, default=64_000_000)
    parser.add_argument("--chunk", type=int, default=8_000_000)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--all", action="store_true", help="those NumPy is fast at, too")
    parser.add_argument("--repeat", type=int, default=5, help="timings of each (default 5)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.alone", arguments), end="\n\n", flush=True)
    print("| operation | gpusched, ms | dask, ms | times faster |\n| --- | --- | --- | --- |")
    least = 0 if options.all else 2
    drawn = np.random.default_rng(0).uniform(0.1, 0.9, options.elements)
    for dtype in options.dtypes:
        values = drawn if np.dtype(dtype).kind == "f" else drawn * 20 + 1
        chunks = da.from_array(values.astype(dtype), chunks=options.chunk)
        x, y = dask.persist(chunks.map_blocks(np.copy), chunks + chunks.dtype.type(1))
        for name, function, given in programs(x, y):
            if name == "ldexp" and x.dtype.kind == "f":
                given = (x, y.astype("int32").persist())
            with dask.config.set({"gpusched.fusion.minimum-operations": least}):
                print(row(name, dtype, function, given, options.repeat), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
