"""What fusion costs beside the kernels: `python -m tests.benchmarks.overhead --help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import DataNode, Task

from gpusched import enable, reset_statistics, statistics
from gpusched.backends.cache import kernels
from gpusched.graph import optimize
from gpusched.graph.programs.program import Program
from tests.benchmarks import report

ELEMENTS = 16
"""Elements of a chunk: so few that the arithmetic takes no time."""

CHUNKS = 1000
"""Chunks of the array whose kernels are counted."""

SETTINGS = {"gpusched.fusion.minimum-elements": 1, "gpusched.fusion.strict": True}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    seconds: list[float]
    unit: str

    def __str__(self) -> str:
        scale = {"us": 1e6, "ms": 1e3}[self.unit]
        times = [scale * seconds for seconds in (median(self.seconds), min(self.seconds))]
        return f"| {self.what} | {times[0]:.1f} {self.unit} | {times[1]:.1f} {self.unit} |"


def ten_operations(x: Any, y: Any) -> Any:
    """Return a chain of ten operations, three of them not plain arithmetic."""
    return 1.0 / np.sqrt(np.exp(-((x - y) * 0.5 + x * y)) * x + np.abs(y))


def chunk_task(array: da.Array) -> tuple[Program, list[np.ndarray]]:
    """Return the program and the inputs of an optimised array's only task."""
    graph = dict(optimize(array.__dask_graph__(), array.__dask_keys__()))
    (task,) = (node for node in graph.values() if type(node) is Task)
    if not isinstance(task.func, Program):
        raise AssertionError(f"{task.func} is not a program")
    values = (node if isinstance(node, DataNode) else graph[node.key] for node in task.args)
    return task.func, [node.value for node in values]


def fresh(program: Program) -> Program:
    """Return an equal program that has recorded nothing yet."""
    return Program(program.steps, program.inputs, program.overrides)


def seconds(call: Callable[[], Any], times: int = 1) -> float:
    """Return the mean wall time of `times` calls."""
    start = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - start) / times


def compiling(program: Program, inputs: list[np.ndarray], from_disk: bool) -> float:
    """Return the seconds a kernel not in memory takes, compiled or loaded as `from_disk` says."""
    kernels.clear()
    reset_statistics()
    fresh(program)(*inputs)
    counts = statistics()
    if counts.launches != 1 or counts.compilations != (not from_disk):
        raise AssertionError(f"not what was to be timed: {counts}")
    return counts.compile_seconds


def rows(repeat: int) -> list[Row]:
    """Return the timings, each taken `repeat` times."""
    x, y = (da.from_array(np.linspace(low, 2, ELEMENTS), chunks=-1) for low in (0.5, 1.0))
    program, inputs = chunk_task(ten_operations(x, y))
    rounds = range(repeat)
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        first = compiling(program, inputs, from_disk=False)
        compiled = [compiling(program, inputs, from_disk=False) for _ in rounds]
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"gpusched.fusion.cache-directory": folder}),
    ):
        compiling(program, inputs, from_disk=False)
        loaded = [compiling(program, inputs, from_disk=True) for _ in rounds]
    recorded = [seconds(lambda: fresh(program)(*inputs)) for _ in rounds]
    program(*inputs)
    reset_statistics()
    seen = [seconds(lambda: program(*inputs), 2000) for _ in rounds]
    if statistics().launches != 2000 * repeat or statistics().recordings:
        raise AssertionError(f"not what was to be timed: {statistics()}")
    plain = [seconds(lambda: ten_operations(*inputs), 2000) for _ in rounds]
    return [
        Row("task of a program seen before: look-up and launch", seen, "us"),
        Row("NumPy's ten calls on the same chunk", plain, "us"),
        Row("first recording and launch, kernel in memory", recorded, "us"),
        Row("compiling the process's first kernel, numba's loading included", [first], "ms"),
        Row("compiling the same kernel again, its vector functions typed", compiled, "ms"),
        Row("loading the kernel from the disk cache", loaded, "ms"),
    ]


def count_kernels() -> str:
    """Return how many kernels and recordings a thousand equal chunks take."""
    x = da.from_array(np.linspace(0.5, 2, CHUNKS * ELEMENTS), chunks=ELEMENTS)
    reset_statistics()
    with enable():
        result = ten_operations(x, x[::-1]).compute(scheduler="sync")
    np.testing.assert_allclose(result, ten_operations(*_both(CHUNKS * ELEMENTS)), rtol=1e-12)
    counts = statistics()
    return (
        f"{CHUNKS:,} equal chunks: {counts.fused_tasks:,} fused tasks, {counts.launches:,} "
        f"launches, {len(counts.kernels)} kernel(s), {counts.recordings} recording(s)"
    )


def _both(count: int) -> tuple[np.ndarray, np.ndarray]:
    values = np.linspace(0.5, 2, count)
    return values, values[::-1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.overhead")
    parser.add_argument("--repeat", type=int, default=9, help="timings of each (default 9)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.overhead", arguments), end="\n\n", flush=True)
    with dask.config.set(SETTINGS):
        table = rows(options.repeat)
        counts = count_kernels()
    print(f"Ten operations on two chunks of {ELEMENTS} float64, one thread:\n")
    print("| what | median | best |\n| --- | --- | --- |", *table, sep="\n")
    print(f"\n{counts}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
