"""What the first fused call of a process costs that finds its kernels on disk.

`python -m tests.benchmarks.warm_start` compares it with the calls that follow, in processes of
their own, and plain dask's first call with those that follow that. What dask imports in its first
call is imported before, and fusion is switched on when the array is there, right before the call.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import dask
import dask.array as da
import distributed  # noqa: F401  dask's first call would import it
import numpy as np

import gpusched
from tests.benchmarks import page, report

LIBRARIES = "dask", "gpusched"
SHAPE, CHUNK = (4000, 2000), (1000, 2000)
"""Of a float32 array: small, so that what is not work shows."""
LATER = 5
"""Calls that follow, whose median is what later calls take."""
LONGEST = 300.0
"""Seconds that one process may take."""

Seconds = dict[str, Any]
"""Wall and processor time of calls, by what they are."""


def standardised(x: Any) -> Any:
    """Return an expression of three kernels."""
    return ((x - x.mean(axis=0)) / (x.std(axis=0) + 1)).sum()


def calls(library: str) -> Seconds:
    """Return what the calls of this process take, and how many modules the first one imports.

    That is besides what it takes to switch fusion on.

    Raises
    ------
    AssertionError
        If gpusched has run without a kernel, or imported a compiler.
    """
    x = da.from_array(np.ones(SHAPE, "f4"), chunks=CHUNK)
    wall, cpu = perf_counter(), process_time()
    with gpusched.enable() if library == "gpusched" else gpusched.disable():
        switched = perf_counter() - wall, process_time() - cpu
        before = len(sys.modules)
        first = _timed(x)
        imported = len(sys.modules) - before
        later = [_timed(x) for _ in range(LATER)]
    counted = gpusched.statistics()
    if library == "gpusched":
        assert counted.fused_tasks and not counted.unfused_tasks, counted
        assert not {"numba", "llvmlite"} & sys.modules.keys()
    typical = tuple(map(median, zip(*later, strict=True)))
    return {"switched": switched, "first": first, "later": typical, "imported": imported}


def _timed(x: Any) -> tuple[float, float]:
    wall, cpu = perf_counter(), process_time()
    standardised(x).compute(scheduler="threads")
    return perf_counter() - wall, process_time() - cpu


def compile_all() -> None:
    """Put the kernels on disk."""
    x = da.from_array(np.ones(SHAPE, "f4"), chunks=CHUNK)
    settings = {"gpusched.fusion.compile": "wait", "gpusched.fusion.compiler": "process"}
    with gpusched.enable(), dask.config.set(settings):
        standardised(x).compute(scheduler="threads")


def measure(repeat: int) -> dict[str, list[Seconds]]:
    """Return what calls take in so many processes of each library; they take turns."""
    found: dict[str, list[Seconds]] = {library: [] for library in LIBRARIES}
    order = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="gpusched-warm-") as folder:
        _process(folder, "compile")
        for _ in range(repeat):
            for library in order.sample(LIBRARIES, len(LIBRARIES)):
                found[library].append(json.loads(_process(folder, library)))
    return found


def _process(folder: str, what: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.warm_start", "--one", what],
        env=os.environ | {"DASK_GPUSCHED__FUSION__CACHE_DIRECTORY": folder},
        check=True, stdout=subprocess.PIPE, timeout=LONGEST,
    )  # fmt: skip
    return done.stdout


def table(found: dict[str, list[Seconds]]) -> str:
    """Return the medians in milliseconds, as Markdown has it."""
    rows = ["| | switched on | first call | later calls | more in the first | of the processor's "
            "time | modules imported |", "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for library, processes in found.items():
        walls = [[each[n][0] for each in processes] for n in ("switched", "first", "later")]
        more = [[each["first"][k] - each["later"][k] for each in processes] for k in (0, 1)]
        cells = [f"{1e3 * median(values):.0f} ms" for values in (*walls, *more)]
        imported = median(each["imported"] for each in processes)
        rows.append(f"| {library} | {' | '.join(cells)} | {imported:.0f} |")
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.warm_start",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--repeat", type=int, default=9, help="processes of each (default 9)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table there")
    parser.add_argument("--one", choices=("compile", *LIBRARIES), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one == "compile":
        compile_all()
    elif options.one:
        print(json.dumps(calls(options.one)))
    else:
        text = table(measure(options.repeat))
        header = report.header("tests.benchmarks.warm_start", arguments)
        page.show(f"{text}\n\n{header}", options.write, "tests.benchmarks.warm_start")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
