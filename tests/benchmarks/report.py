"""Tables of what was measured, as text that is Markdown too."""

from __future__ import annotations

import datetime
import platform
import shlex
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.benchmarks.contenders import CHUNKED
from tests.benchmarks.contenders.base import THREADS
from tests.benchmarks.measure import Timing
from tests.benchmarks.results import Measured, Results

BASE = "dask"
"""The contender that ratios refer to."""

OURS = "gpusched", "gpusched-cluster"
"""gpusched's contenders, which are not behind themselves."""

_PACKAGES = (
    "gpusched", "dask", "distributed", "numpy", "numba", "llvmlite", "jax", "torch", "numexpr",
    "cubed", "xarray",
)  # fmt: skip

Cell = Callable[[dict[str, Timing], str], str]
"""What a table shows of one contender's timing."""


def header(module: str, arguments: list[str]) -> str:
    """Return the date, the machine, the versions and the command, one a line."""
    command = shlex.join(["python", "-m", module, *arguments])
    versions = ", ".join(map(_version, _PACKAGES))
    return "\n".join(
        [
            f"- date: {datetime.datetime.now().astimezone().date()}",
            f"- machine: {_processor()}, {THREADS} cores used, {platform.system()}",
            f"- versions: Python {platform.python_version()}, {versions}",
            f"- command: `{command}`",
        ]
    )


def tables(results: Results) -> str:
    """Return ratios, medians, first calls, where gpusched is behind, and who is missing and why."""
    parts = [
        f"Times faster than {BASE} on threads (ratio of medians):\n\n{_table(results, _ratio)}",
        f"Medians in milliseconds:\n\n{_table(results, _milliseconds)}",
        "First calls in milliseconds, with what they compile; gpusched compiles beside them, and "
        f"its second call follows at once:\n\n{_table(results, _first)}",
    ]
    if late := behind(results):
        parts.append("Where gpusched is behind plain dask, or one that works in chunks:\n\n" + late)
    if missing := _missing(results):
        parts.append("Not measured:\n\n" + missing)
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
    for (work, dtype), measured in results.items():
        for name in CHUNKED:
            if name in OURS:
                continue
            ours = "gpusched-cluster" if name == "dask-cluster" else "gpusched"
            if (slower := ratio(measured.timings, ours, name)) is not None and slower < 1:
                lines.append(f"- {work} {dtype}: {ours} takes {1 / slower:.2f} times {name}'s time")
    return "\n".join(lines)


def _table(results: Results, cell: Cell) -> str:
    names = shown(results)
    rows = [["work", *names]]
    for (work, dtype), measured in results.items():
        rows.append([f"{work} {dtype}", *(_cell(measured, name, cell) for name in names)])
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
                works.setdefault((name, timing.absent), {})[work] = None
    everywhere = len({work for work, _ in results})
    return "\n".join(
        f"- {name}: {reason}" + ("" if len(at) == everywhere else f" ({', '.join(at)})")
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
