"""Tables of what was measured, as text that is Markdown too."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.benchmarks.contenders.base import THREADS
from tests.benchmarks.measure import Timing

BASE = "dask"
"""The contender that ratios refer to."""

_PACKAGES = ("gpusched", "dask", "numpy", "numba", "llvmlite", "jax", "torch", "numexpr")

Results = dict[tuple[str, str], dict[str, Timing]]
"""Timings by work and dtype, then by contender."""

Cell = Callable[[dict[str, Timing], str], str]
"""What a table shows of one contender's timing."""


def header(module: str, arguments: list[str]) -> str:
    """Return the machine, the versions and the command, one a line."""
    command = shlex.join(["python", "-m", module, *arguments])
    versions = ", ".join(map(_version, _PACKAGES))
    return "\n".join(
        [
            f"- machine: {_processor()}, {THREADS} cores used, {platform.system()}",
            f"- versions: Python {platform.python_version()}, {versions}",
            f"- command: `{command}`",
        ]
    )


def tables(results: Results) -> str:
    """Return the table of ratios, the table of medians, and who is missing and why."""
    names = list(next(iter(results.values())))
    parts = [f"Medians in milliseconds:\n\n{_table(results, names, _milliseconds)}"]
    if BASE in names:
        speed = _table(results, names, _ratio)
        parts.insert(0, f"Times faster than {BASE} threads (ratio of medians):\n\n{speed}")
    if missing := _missing(results):
        parts.append("Not measured:\n\n" + missing)
    return "\n\n".join(parts)


def _table(results: Results, names: list[str], cell: Cell) -> str:
    rows = [["work", *names]]
    for (work, dtype), timings in results.items():
        rows.append([f"{work} {dtype}", *(cell(timings, name) for name in names)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def _ratio(timings: dict[str, Timing], name: str) -> str:
    if timings[name].absent or timings[BASE].absent:
        return "-"
    return f"{timings[BASE].median / timings[name].median:.2f}"


def _milliseconds(timings: dict[str, Timing], name: str) -> str:
    return "-" if timings[name].absent else f"{timings[name].median * 1e3:.1f}"


def _missing(results: Results) -> str:
    works: dict[tuple[str, str], list[str]] = {}
    for (work, dtype), timings in results.items():
        for name, timing in timings.items():
            if timing.absent:
                works.setdefault((name, timing.absent), []).append(f"{work} {dtype}")
    everywhere = len(results)
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
