"""README's table: plain dask and gpusched on threads, their first runs and later ones."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from tests.benchmarks import page, report
from tests.benchmarks.first_calls import FirstCalls
from tests.benchmarks.measure import Timing
from tests.benchmarks.results import Measured, Results

ROWS = (
    ("black-scholes-tanh", "float64"),
    ("terrain", "float64"),
    ("axis-statistics", "float64"),
    ("heat", "float64"),
    ("softmax", "float64"),
    ("climate", "float64"),
    ("inference", "float32"),
)
"""Where gpusched gains much, little and nothing: each kind of program once."""

CONTENDERS = ("dask", "gpusched")
PLACES = ("threads",)

HEADS = [
    "workload",
    "dask, first run",
    "dask, repeated",
    "gpusched, first run",
    "gpusched, repeated",
]


def write(path: Path, results: Results) -> None:
    """Write the table to a page, between its marks.

    Raises
    ------
    ValueError
        If a row was not measured, or the page lacks the marks.
    """
    page.replace(path, body(results))


def body(results: Results) -> str:
    """Return the table, after a sentence that says where and when it was measured."""
    if missing := [f"{work} {dtype}" for work, dtype in ROWS if (work, dtype) not in results]:
        raise ValueError(f"README's table lacks {', '.join(missing)}: measure these too")
    rows = [_row(row, results[row]) for row in ROWS]
    lines = [HEADS, ["---", *["---:"] * (len(HEADS) - 1)], *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_sentence([results[row] for row in ROWS])}\n\n{table}"


def _row(row: tuple[str, str], measured: Measured) -> list[str]:
    first = measured.first_calls.get("threads", FirstCalls("", absent="not measured"))
    dask, ours = (measured.timings.get(name, Timing(absent="-")) for name in CONTENDERS)
    cells = [first.dask, dask.seconds, first.first, ours.seconds]
    return [report.label(row), *map(_milliseconds, cells)]


def _milliseconds(seconds: list[float]) -> str:
    return f"{median(seconds) * 1e3:,.0f}" if seconds else "-"


def _sentence(measured: list[Measured]) -> str:
    runs = [report.facts(each.run) for each in measured]
    machines = " and ".join(sorted({facts["machine"] for facts in runs}))
    dates = " and ".join(sorted({facts["date"] for facts in runs}))
    return (
        f"Compared with plain dask on threads, in milliseconds ({machines}; {dates}; "
        "[performance](docs/explanation/performance.md) has all workloads, other libraries and the "
        'commands). "First run" is of a fresh process that finds no compiled kernel; kernels are '
        "kept for later programs."
    )
