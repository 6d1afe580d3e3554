"""What each pass over the graph gains: programs with all of them, and without each that acts.

`python -m tests.benchmarks.passes` runs works and programs once, to see which passes change their
graphs, and times them then with all passes, and with each of those left out, in turns, when all
kernels are compiled. Above 1, the pass makes a program faster.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from statistics import geometric_mean, median
from typing import Any
from unittest.mock import patch

import dask
import numpy as np
from dask._task_spec import Task

import gpusched
from tests.benchmarks import page, report
from tests.benchmarks.contenders.base import Case
from tests.benchmarks.contenders.dask_threads import prepare, to_numpy
from tests.benchmarks.measure import seconds_of
from tests.benchmarks.programs import PROGRAMS
from tests.benchmarks.works import WORKS
from tests.benchmarks.works.base import several

NAME = "tests.benchmarks.passes"
OPTIMISATION = "gpusched.graph.optimisation"
PASSES = {
    "chains": (f"{OPTIMISATION}.without_links", f"{OPTIMISATION}.without_names"),
    "unsplitting": (f"{OPTIMISATION}._in_whole_chunks",),
    "reducefirst": ("gpusched.graph.passes.reducefirst.reduced_first",),
    "absorbed": (f"{OPTIMISATION}.absorbed",),
    "recomputing": (f"{OPTIMISATION}.recomputed",),
    "merging": (f"{OPTIMISATION}.merged",),
    "cutting": (f"{OPTIMISATION}.cut_together",),
    "batching": (f"{OPTIMISATION}.batched",),
    "assembling": (f"{OPTIMISATION}.assembled",),
}
"""The functions of each pass that may be left out: they return a graph like the one they get."""

Run = Callable[[], Any]
Values = Callable[[Any], list[np.ndarray]]
"""Makes NumPy arrays of what a `Run` has returned, which is left in chunks."""


@dataclass(frozen=True)
class Gain:
    """What leaving one pass out of one program costs."""

    program: str
    tasks: tuple[int, int]
    """How many there are with the pass, and without it."""
    seconds: tuple[float, float]

    @property
    def ratio(self) -> float:
        """How many times longer the program takes without the pass."""
        return self.seconds[1] / self.seconds[0]


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """Have the functions of a pass return the graph that they get, if it is the name of one."""
    with ExitStack() as stack:
        for target in PASSES.get(name, ()):
            stack.enter_context(patch(target, lambda graph, *args, **kwargs: graph))
        yield


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """Count by pass how often it returns another graph than it gets, and tasks in the end."""
    found: Counter[str] = Counter()

    def watching(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watch(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(graph, *args, **kwargs)
            found[name] += is_changed(graph, result)
            return result

        return watch

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            graph = function(*args, **kwargs)
            found["tasks"] += sum(isinstance(node, Task) for node in graph.values())
            return graph

        return count

    with ExitStack() as stack:
        for name, targets in PASSES.items():
            for target in targets:
                stack.enter_context(patch(target, watching(name, resolve_name(target))))
        whole = f"{OPTIMISATION}._optimise"
        stack.enter_context(patch(whole, counting(resolve_name(whole))))
        yield found


def is_changed(before: Any, after: Any) -> bool:
    """Return whether a pass has returned other nodes than it got: of a table, or of a graph."""
    old, new = (getattr(each, "tasks", each) for each in (before, after))
    return old.keys() != new.keys() or any(new[key] is not old[key] for key in old)


def gains(program: str, run: Run, values: Values, repeat: int) -> Iterator[tuple[str, Gain]]:
    """Yield each pass that changes the graph of a program, and what it gains.

    Raises
    ------
    AssertionError
        If a result is another one without a pass.
    """
    with watched() as found:
        expected = values(run())
    ways = ["all", *(name for name in PASSES if found[name])]
    tasks, seconds = {}, {way: [] for way in ways}
    for way in ways:
        # Waits for the kernels, as the calls that are timed do not.
        fused = dask.config.set({"gpusched.fusion.tier": "fused"})
        with left_out(way), fused, watched() as found:
            result = run()
        tasks[way] = found["tasks"]
        for one, other in zip(values(result), expected, strict=True):
            rounding = 1e-5 * float(np.nanmax(np.abs(other)))
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=rounding)
    del expected, result, one, other  # Their memory may be used by the calls that are timed.
    order = random.Random(0)
    for _ in range(repeat):
        for way in order.sample(ways, len(ways)):
            with left_out(way):
                seconds[way].append(seconds_of(run))
    for way in ways[1:]:
        both = [median(seconds[each]) for each in ("all", way)]
        yield way, Gain(program, (tasks["all"], tasks[way]), (both[0], both[1]))


def programs(names: list[str], nbytes: int) -> Iterator[tuple[str, Run, Values]]:
    """Yield works, in float32, and programs by their names, each with a call that computes it."""
    for name in names:
        if name in PROGRAMS:
            build = PROGRAMS[name](nbytes)
            yield name, lambda build=build: build().compute(scheduler="threads"), several
        else:
            work = WORKS[name]
            dtype, count = next(iter(work.elements.items()))
            case = Case(work, dtype, count, work.inputs(count, dtype), [])
            prepared = prepare(case, work.programs.get("gpusched"))
            yield name, prepared.run, to_numpy


def rows(found: dict[str, list[Gain]]) -> Iterator[str]:
    """Yield the lines of a table: each pass, and where it gains most and least."""
    yield "| pass | programs | tasks without it | gain | most | least |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, each in found.items():
        if not each:
            yield f"| {name} | 0 | - | - | - | - |"
            continue
        each.sort(key=lambda gain: gain.ratio)
        least, most = each[0], each[-1]
        tasks = geometric_mean(gain.tasks[1] / gain.tasks[0] for gain in each)
        yield (
            f"| {name} | {len(each)} | {tasks:.1f} times | "
            f"{geometric_mean(gain.ratio for gain in each):.2f} | "
            f"{most.ratio:.2f} ({most.program}) | {least.ratio:.2f} ({least.program}) |"
        )


def main(arguments: list[str]) -> int:
    known = [*WORKS, *PROGRAMS]
    parser = argparse.ArgumentParser(prog=f"python -m {NAME}", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=known, default=known)
    parser.add_argument("--megabytes", type=int, default=300, help="of a program (default 300)")
    parser.add_argument("--repeat", type=int, default=5, help="timings of each (default 5)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table there")
    options = parser.parse_args(arguments)
    found: dict[str, list[Gain]] = {name: [] for name in PASSES}
    with gpusched.enable():
        for program, run, values in programs(options.only, options.megabytes << 20):
            for name, gain in gains(program, run, values, options.repeat):
                with_it, without = gain.seconds
                print(f"{program}: without {name} {gain.ratio:.2f} times as long "
                      f"({with_it:.3f}, {without:.3f} s; {gain.tasks[0]}, {gain.tasks[1]} tasks)",
                      file=sys.stderr, flush=True)  # fmt: skip
                found[name].append(gain)
    header = report.header(NAME, arguments)
    page.show("\n".join(rows(found)) + f"\n\n{header}", options.write, NAME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
