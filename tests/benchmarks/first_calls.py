"""First calls, each in a process of its own, where no kernel is known, and where all are on disk.

What is compared with plain dask's first call is the whole call: with what is imported in it, the
start of the compile service, and what the compiler takes from the cores. Fusion is switched on
before the data are made, as programs do. A second process of gpusched's then finds the kernels of
the first on disk.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import gpusched
from gpusched.store import background
from gpusched.store.service import client as service
from tests.benchmarks.contenders import clusters, load
from tests.benchmarks.contenders.base import Case
from tests.benchmarks.works import WORKS

NAME = "tests.benchmarks.first_calls"
PLACES = "threads", "cluster"
"""Where programs run: dask's threads, and a cluster of `WORKERS` processes."""
WORKERS = 2
LONGEST = 900.0
"""Seconds that one process may take."""
FREE = 1 << 30, 4 << 30
"""Bytes of memory that are free for the first call, at least and at most; else as many as its
inputs have three times, for its results and what is between them."""
STEADY = 3
"""Calls whose median is what later calls take."""


@dataclass
class FirstCalls:
    """What first calls of one work and dtype took in one place; a number for each process."""

    run: str
    """Date, machine, versions and command of the run that measured it, a line each."""
    dask: list[float] = field(default_factory=list)
    """Seconds of plain dask's first call."""
    first: list[float] = field(default_factory=list)
    """Seconds of gpusched's first call, with an empty kernel cache."""
    second: list[float] = field(default_factory=list)
    """Seconds of the call that follows at once."""
    steady: list[float] = field(default_factory=list)
    """Seconds of a call when all kernels are compiled."""
    warm: list[float] = field(default_factory=list)
    """Seconds of the first call of a process that finds the kernels on disk."""
    unused: list[float] = field(default_factory=list)
    """Seconds of processor time spent on kernels that none of these calls launched."""
    absent: str = ""
    """Why it was not measured; empty when it was."""

    def ratio(self, one: str, other: str) -> float | None:
        """Return how many times the one's median is the other's, if both were measured."""
        values, base = getattr(self, one), getattr(self, other)
        return median(values) / median(base) if values and base else None


def measure(work: str, dtype: str, count: int, place: str, repeat: int, run: str) -> FirstCalls:
    """Return what first calls take; the processes of both take turns.

    Parameters
    ----------
    work, dtype, count
        What is computed, on how many elements.
    place
        One of `PLACES`.
    repeat
        Processes of each kind.
    run
        Date, machine, versions and command.
    """
    found = FirstCalls(run)
    order = random.Random(0)
    try:
        # So that the first process is not the one that reads the libraries from the disk.
        _plain(FirstCalls(run), [work, dtype, str(count // 1000), place])
        for _ in range(repeat):
            for turn in order.sample((_plain, _fused), 2):
                turn(found, [work, dtype, str(count), place])
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        found.absent = _reason(error)
    return found


def _plain(found: FirstCalls, what: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="gpusched-first-") as folder:
        found.dask.append(process(NAME, [*what, "dask"], Path(folder))["first"])


def _fused(found: FirstCalls, what: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="gpusched-first-") as folder:
        cold = process(NAME, [*what, "gpusched"], Path(folder))
        warm = process(NAME, [*what, "gpusched", "--once"], Path(folder))
    for name in ("first", "second", "steady", "unused"):
        getattr(found, name).append(cold[name])
    found.warm.append(warm["first"])


def _reason(error: subprocess.CalledProcessError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"a process took more than {LONGEST:.0f} s"
    told = (error.stderr or b"").decode(errors="replace").strip().splitlines()
    return f"failed: {told[-1] if told else error}"


def process(module: str, arguments: list[str], folder: Path) -> dict[str, float]:
    """Return what a module prints in a fresh process, which knows the kernels in a folder only."""
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    own = {"XDG_RUNTIME_DIR": str(folder / "run"),
           "DASK_GPUSCHED__FUSION__CACHE_DIRECTORY": str(folder / "kernels")}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ | own, check=True, capture_output=True, timeout=LONGEST,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def calls(work: str, dtype: str, count: int, place: str, library: str,
          once: bool = False) -> dict[str, float]:  # fmt: skip
    """Return the seconds of the first calls of this process.

    Of plain dask, only the first is made: it compiles nothing. So it is if only that is asked for.
    """
    clusters.workers = WORKERS
    contender = library if place == "threads" else f"{library}-cluster"
    if library == "gpusched":
        gpusched.enable()
    inputs = WORKS[work].inputs(count, dtype)
    prepared = load(contender)(Case(WORKS[work], dtype, count, inputs, []))
    get_memory(sum(each.nbytes for each in inputs))
    found = {"first": _seconds(prepared.run)}
    if prepared.settle is not None and not once:
        found["second"] = _seconds(prepared.run)
        prepared.settle()
        background.join()
        if place == "cluster":
            clusters.client("gpusched").run(_join)
        found["steady"] = median(_seconds(prepared.run) for _ in range(STEADY))
        found["unused"] = sum(_unused(place).values())
    return found


def get_memory(nbytes: int) -> None:
    """Get as much memory as a first call may need for inputs of some bytes, and let go of it.

    Virtual machines may give pages back that have been free for two seconds. To get 256 MB again
    takes half a second, from whoever happens to need them first.
    """
    np.ones(min(max(3 * nbytes, FREE[0]), FREE[1]), np.uint8)


def _join() -> None:
    """Wait for what this process has asked the compile service for; what does is not picklable."""
    background.join()


def _seconds(run: Callable[[], Any]) -> float:
    start = perf_counter()
    result = run()
    elapsed = perf_counter() - start
    del result
    gc.collect()
    return elapsed


def _unused(place: str) -> dict[str, float]:
    """Return the seconds spent on each kernel that the service made, and nobody launched."""
    counted = gpusched.statistics()
    if place == "cluster":
        for each in clusters.client("gpusched").run(gpusched.statistics).values():
            counted = counted.merge(each)
    return {name: spent for name, spent in service.made().items() if name not in counted.kernels}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {NAME}", description=__doc__)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("dtype")
    parser.add_argument("count", type=int, help="elements")
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("library", choices=("dask", "gpusched"))
    parser.add_argument("--once", action="store_true", help="make the first call only")
    try:
        print(json.dumps(calls(**vars(parser.parse_args(arguments)))))
    finally:
        clusters.close()
        service.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
