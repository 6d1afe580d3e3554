"""What optimising a graph takes, by its chunks: `python -m tests.benchmarks.graphs --help`."""

from __future__ import annotations

import argparse
import gc
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import dask.array as da
import numpy as np
from dask._expr import FinalizeCompute
from dask._task_spec import Task, convert_legacy_graph
from dask.array.optimization import optimize as dask_optimize
from dask.base import collections_to_expr
from dask.utils import ensure_dict

from gpusched.graph import optimize
from tests.benchmarks import report

CHUNK = 10
"""Elements of a chunk: so few that chunks are tiny however many there are."""

SIZES = (1_000, 10_000, 100_000, 1_000_000)


def chain(chunks: int) -> da.Array:
    """Return two operations on an array that dask makes."""
    return (da.ones(chunks * CHUNK, chunks=CHUNK) + 1) * 2


def total(chunks: int) -> da.Array:
    """Return the sum of such a chain, by a tree."""
    return chain(chunks).sum()


def given(chunks: int) -> da.Array:
    """Return two operations on an array in memory, whose chunks the graph holds."""
    return (da.from_array(np.arange(float(chunks * CHUNK)), chunks=CHUNK) + 1) * 2


def neighbours(chunks: int) -> da.Array:
    """Return sums of neighbouring elements, each chunk with the edges of two others."""
    x = da.ones(chunks * CHUNK, chunks=CHUNK)
    return x.map_overlap(lambda z: z * 2, depth=1, boundary="none")


PROGRAMS: dict[str, Callable[[int], da.Array]] = {
    each.__name__: each for each in (chain, total, given, neighbours)
}


@dataclass(frozen=True)
class Row:
    """One program of one size."""

    program: str
    chunks: int
    dask: float
    """Seconds of processor time that dask's own optimisation takes."""
    gpusched: float
    """Seconds of processor time that gpusched's takes, dask's included."""
    before: int
    """Tasks of dask's graph."""
    after: int
    """Tasks of gpusched's."""

    def __str__(self) -> str:
        each = [1e6 * seconds / self.chunks for seconds in (self.dask, self.gpusched)]
        return (
            f"| {self.program} | {self.chunks:,} | {each[0]:.1f} | {each[1]:.1f} "
            f"| {self.before:,} | {self.after:,} |"
        )


def layered(array: da.Array) -> tuple[Any, Any]:
    """Return the graph and the keys that `compute` has optimised."""
    expression = FinalizeCompute(collections_to_expr([array])).optimize()
    operand = expression.operands[0] if len(expression.operands) == 1 else expression
    return operand.hlg, operand.__dask_keys__()


def timed(optimiser: Callable[..., Any], array: da.Array) -> tuple[float, int]:
    """Return the processor time of an optimisation, and the tasks that it leaves."""
    graph, keys = layered(array)
    gc.collect()
    start = process_time()
    nodes = convert_legacy_graph(ensure_dict(optimiser(graph, keys)))
    seconds = process_time() - start
    return seconds, sum(isinstance(node, Task) for node in nodes.values())


def measure(name: str, chunks: int, repeat: int) -> Row:
    """Return the medians of both optimisations, which take turns."""
    theirs, ours = [], []
    for _ in range(repeat):
        # A new array each time: layers keep what they were written out as.
        seconds, before = timed(dask_optimize, PROGRAMS[name](chunks))
        theirs.append(seconds)
        seconds, after = timed(optimize, PROGRAMS[name](chunks))
        ours.append(seconds)
    return Row(name, chunks, median(theirs), median(ours), before, after)


def slope(rows: list[Row], seconds: Callable[[Row], float]) -> float:
    """Return the exponent of the size in the time, fitted in logarithms; 1 is linear."""
    x = [math.log(row.chunks) for row in rows]
    y = [math.log(seconds(row)) for row in rows]
    return float(np.polyfit(x, y, 1)[0])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.graphs", description=__doc__)
    parser.add_argument("--chunks", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--repeat", type=int, default=3, help="timings of each (default 3)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.graphs", arguments), end="\n\n")
    print("| program | chunks | dask, us a chunk | gpusched | dask's tasks | gpusched's |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    slopes = []
    for name in options.programs:
        rows = []
        for chunks in options.chunks:
            rows.append(measure(name, chunks, options.repeat))
            print(rows[-1], flush=True)
        if len(rows) > 1:
            both = [slope(rows, lambda row: row.dask), slope(rows, lambda row: row.gpusched)]
            slopes.append(f"| {name} | {both[0]:.2f} | {both[1]:.2f} |")
    print("\nSlope of the time over the chunks, in logarithms:\n")
    print("| program | dask | gpusched |\n| --- | --- | --- |", *slopes, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
