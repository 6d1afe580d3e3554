"""Tables of what was measured, as text that is Markdown too."""

from __future__ import annotations

import datetime
import platform
import shlex
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import geometric_mean

from gpusched import installing
from tests.benchmarks.contenders import CHUNKED
from tests.benchmarks.contenders.base import THREADS
from tests.benchmarks.first_calls import PLACES, FirstCalls
from tests.benchmarks.measure import Timing
from tests.benchmarks.results import Measured, Results
from tests.benchmarks.works import WORKS

BASE = "dask"
"""The contender that ratios refer to."""

OURS = "gpusched", "gpusched-cluster"
"""gpusched's contenders, which are not behind themselves."""

FILES = "--json", "--merge", "--readme", "--write"
"""Options that say where results are kept, which is no matter of who measures again."""

_PACKAGES = (
    installing.DISTRIBUTION, "dask", "distributed", "numpy", "numba", "llvmlite", "jax", "torch",
    "numexpr", "cubed", "xarray",
)  # fmt: skip

Cell = Callable[[dict[str, Timing], str], str]
"""What a table shows of one contender's timing."""

RATIOS = {"first call": ("first", "dask"), "second call": ("second", "steady"),
          "first call, kernels on disk": ("warm", "dask")}  # fmt: skip
"""Columns of the table of first calls, and what is compared in each."""


def header(module: str, arguments: list[str]) -> str:
    """Return the date, the machine, the versions and the command, one a line."""
    command = shlex.join(["python", "-m", module, *_without_files(arguments)])
    versions = ", ".join(map(_version, _PACKAGES))
    return "\n".join(
        [
            f"- date: {datetime.datetime.now().astimezone().date()}",
            f"- machine: {_processor()}, {THREADS} cores used, {platform.system()}",
            f"- versions: Python {platform.python_version()}, {versions}",
            f"- command: `{command}`",
        ]
    )


def facts(run: str) -> dict[str, str]:
    """Return the lines of a header by their names."""
    return dict(line.removeprefix("- ").split(": ", 1) for line in run.splitlines())


def _without_files(arguments: Iterable[str]) -> list[str]:
    """Return arguments without the options of `FILES`, and the paths that follow them.

    Examples
    --------
    >>> from tests.benchmarks.report import _without_files
    >>> _without_files(["--merge", "a.json", "b.json", "--repeat", "5", "--json=c.json"])
    ['--repeat', '5']
    """
    kept = []
    dropping = False
    for word in arguments:
        if word.startswith("--"):
            dropping = word.partition("=")[0] in FILES
        if not dropping:
            kept.append(word)
    return kept


def summary(results: Results) -> str:
    """Return the two sentences that a reader wants first."""
    found = {row: ratio(measured.timings, "gpusched") for row, measured in results.items()}
    ratios = {row: value for row, value in found.items() if value is not None}
    parts = []
    if ratios:
        ahead = sum(value >= 1 for value in ratios.values())
        best = max(ratios, key=ratios.__getitem__)
        parts.append(
            f"On the same chunks and threads, gpusched is faster than plain dask in {ahead} of "
            f"{len(ratios)} workloads, {geometric_mean(ratios.values()):.1f} times in the "
            f"geometric mean and {ratios[best]:.1f} times at most ({label(best)})."
        )
    parts += [text for place in PLACES if (text := _first_summary(results, place))]
    return " ".join(parts)


def _first_summary(results: Results, place: str) -> str:
    """Return a sentence on first calls in one place, which are as fast as dask's up to noise."""
    found = {
        row: value
        for row, measured in results.items()
        if place in measured.first_calls
        and (value := measured.first_calls[place].ratio("first", "dask")) is not None
    }
    if not found:
        return ""
    worst = max(found, key=found.__getitem__)
    within = sum(value <= 1.05 for value in found.values())
    where = "on threads" if place == "threads" else "on a cluster of two workers"
    return (
        f"The first call {where}, with an empty kernel cache, takes at most 1.05 times as long as "
        f"plain dask's in {within} of {len(found)}; the longest takes {found[worst]:.2f} times as "
        f"long ({label(worst)})."
    )


def tables(results: Results) -> str:
    """Return ratios, first calls, medians, where gpusched is behind, and who is missing and why."""
    timed = {row: measured for row, measured in results.items() if measured.timings}
    parts = []
    if timed:
        parts.append(f"## Times faster than dask on threads\n\n{_table(timed, _ratio)}")
    if firsts := _first_calls(results):
        parts.append(f"## First calls\n\n{firsts}")
    if timed:
        parts.append(f"## Medians in milliseconds\n\n{_table(timed, _milliseconds)}")
        parts.append(
            "## First calls of all, in milliseconds\n\nIn one process after each other, with what "
            "they compile; gpusched compiles beside them, and its second call follows at once.\n\n"
            f"{_table(timed, _first)}"
        )
    if late := behind(results):
        parts.append("## Where gpusched is behind dask, or one that works in chunks\n\n" + late)
    if missing := _missing(results):
        parts.append("## Not measured\n\n" + missing)
    return "\n\n".join(parts)


def shown(results: Results) -> list[str]:
    """Return the contenders that were measured on anything, in order."""
    names: dict[str, bool] = {}
    for measured in results.values():
        for name, timing in measured.timings.items():
            names[name] = names.get(name, False) or not timing.absent
    return [name for name, there in names.items() if there]


def ratio(timings: dict[str, Timing], name: str, base: str = BASE) -> float | None:
    """Return how many times faster than `base` it was; None where one of them is absent."""
    both = [timings.get(who) for who in (base, name)]
    if any(timing is None or timing.absent for timing in both):
        return None
    return timings[base].median / timings[name].median


def behind(results: Results) -> str:
    """Return a line for each contender that works in chunks and was faster than gpusched."""
    lines = []
    for row, measured in results.items():
        for name in CHUNKED:
            if name in OURS:
                continue
            ours = "gpusched-cluster" if name == "dask-cluster" else "gpusched"
            if (slower := ratio(measured.timings, ours, name)) is not None and slower < 1:
                lines.append(f"- {label(row)}: {ours} takes {1 / slower:.2f} times {name}'s time")
    return "\n".join(lines)


def _first_calls(results: Results) -> str:
    """Return the table of what first and second calls take, if any were measured."""
    measured = {row: each.first_calls for row, each in results.items() if each.first_calls}
    if not measured:
        return ""
    heads = [f"{name}, {place}" for place in PLACES for name in RATIOS]
    rows = [["workload", *heads, "never used, s"]]
    for row, calls in measured.items():
        cells = [_of(calls.get(place), pair) for place in PLACES for pair in RATIOS.values()]
        unused = [s for each in calls.values() for s in each.unused]
        rows.append([label(row), *cells, f"{max(unused):.1f}" if unused else "-"])
    return f"{_FIRST}\n\n{_markdown(rows)}"


_FIRST = (
    "Each in a fresh process, with an empty kernel cache: gpusched's *first call* in times of "
    "plain dask's first call, its *second call*, right after it, in times of a call when all "
    "kernels are compiled, and the first call of a process that finds the *kernels on disk* in "
    "times of plain dask's; on threads, and on a cluster of two workers. *Never used* is the "
    "processor time of kernels that were compiled and that none of these calls launched."
)


def _of(calls: FirstCalls | None, pair: tuple[str, str]) -> str:
    value = None if calls is None else calls.ratio(*pair)
    return "-" if value is None else f"{value:.2f}"


def label(row: tuple[str, str]) -> str:
    """Return what a work and a dtype are called in tables."""
    return f"{WORKS[row[0]].label}, {row[1]}"


def _table(results: Results, cell: Cell) -> str:
    names = shown(results)
    rows = [["workload", *names]]
    for row, measured in results.items():
        rows.append([label(row), *(_cell(measured, name, cell) for name in names)])
    return _markdown(rows)


def _markdown(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def _cell(measured: Measured, name: str, cell: Cell) -> str:
    timing = measured.timings.get(name)
    return "-" if timing is None or timing.absent else cell(measured.timings, name)


def _ratio(timings: dict[str, Timing], name: str) -> str:
    value = ratio(timings, name)
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(timings: dict[str, Timing], name: str) -> str:
    return f"{timings[name].median * 1e3:.1f}"


def _first(timings: dict[str, Timing], name: str) -> str:
    first, second = timings[name].first, timings[name].second
    if first is None:
        return "-"
    return f"{first * 1e3:.0f}" + (f", {second * 1e3:.0f}" if second is not None else "")


def _missing(results: Results) -> str:
    works: dict[tuple[str, str], dict[str, None]] = {}
    for (work, _), measured in results.items():
        for name, timing in measured.timings.items():
            if timing.absent:
                works.setdefault((name, timing.absent), {})[WORKS[work].label] = None
        for place, calls in measured.first_calls.items():
            if calls.absent:
                what = f"first calls, {place}", calls.absent
                works.setdefault(what, {})[WORKS[work].label] = None
    everywhere = len({work for work, _ in results})
    return "\n".join(
        f"- {name}: {reason}" + ("" if len(at) == everywhere else f" ({'; '.join(at)})")
        for (name, reason), at in works.items()
    )


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} missing"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
