"""The page of figures: what is measured is replaced, what people wrote beside it stays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.benchmarks import plot, report
from tests.benchmarks.results import Results
from tests.benchmarks.works import WORKS

BEGIN = "<!-- measured: make bench writes from here -->"
END = "<!-- measured: to here -->"
OF = "<!-- measured: python -m {} writes from here -->"
"""What takes the place of `BEGIN` where another command writes."""
FIRST_CALLS = OF.format("tests.benchmarks --contenders")
"""Where first calls are written, with the command that measures nothing else."""


def write(path: Path, results: Results) -> None:
    """Write tables and plot, and those of first calls, to the page, each between marks.

    What nothing was measured of stays as it is; a page that is not there is begun.

    Raises
    ------
    ValueError
        If the page has only one of two marks, or another order.
    """
    timed = {
        row: dataclasses.replace(each, first_calls={})
        for row, each in results.items()
        if each.timings
    }
    firsts = {
        row: dataclasses.replace(each, timings={})
        for row, each in results.items()
        if each.first_calls
    }
    if timed or not firsts:
        picture = path.with_suffix(".svg")
        replace(path, body(timed, picture.name))
        plot.write(picture, timed)
    if firsts:
        parts = report.summary(firsts), report.tables(firsts), runs(firsts)
        replace(path, "\n\n".join(parts), FIRST_CALLS)


def show(measured: str, path: Path | None, module: str) -> None:
    """Print what a benchmark measured, and write it to a page that has the benchmark's marks.

    Parameters
    ----------
    measured
        As Markdown has it.
    path
        Of the page; None if there is none to write.
    module
        Of the benchmark.
    """
    print(measured)
    if path is not None:
        replace(path, measured, OF.format(module))


def replace(path: Path, measured: str, mark: str = BEGIN) -> None:
    """Write what was measured to a page, between its marks; a page that is not there is begun.

    Parameters
    ----------
    path
        Of the page.
    measured
        What stands between the marks from now on.
    mark
        The first of them; `END` is the other.

    Raises
    ------
    ValueError
        If the page has only one of the marks, or another order.
    """
    title = path.stem.capitalize()
    text = path.read_text() if path.exists() else _begun(title)
    before, begin, rest = text.partition(mark)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} lacks {mark!r} or, after it, {END!r}: add a line with each")
    path.write_text(f"{before}{mark}\n\n{measured}\n\n{END}{after}")


def _begun(title: str) -> str:
    return "\n\n".join([f"# {title}", *(f"{mark}\n{END}" for mark in (BEGIN, FIRST_CALLS))]) + "\n"


def body(results: Results, picture: str) -> str:
    """Return the part that is measured: the summary and the chart first."""
    image = f"![How many times faster than dask on threads, by workload]({picture})"
    return "\n\n".join(
        [
            report.summary(results),
            image,
            report.tables(results),
            f"## Workloads\n\n{works(results)}",
            f"## Where and when it was measured\n\n{runs(results)}",
        ]
    )


def runs(results: Results) -> str:
    """Return machine and versions, and the date and command of each run on them, each once."""
    told: dict[str, list[str]] = {}
    for run in _told(results):
        lines = report.facts(run)
        where = "\n".join(f"- {name}: {lines[name]}" for name in ("machine", "versions"))
        told.setdefault(where, []).append(f"- {lines['date']}: {lines['command']}")
    return "\n\n".join("\n".join([where, *commands]) for where, commands in told.items())


def _told(results: Results) -> list[str]:
    """Return what is known of each run that something was measured in."""
    found = []
    for measured in results.values():
        found += [measured.run] if measured.timings else []
        found += [calls.run for calls in measured.first_calls.values()]
    return list(dict.fromkeys(found))


def works(results: Results) -> str:
    """Return what each work is, and how many elements it has."""
    sizes: dict[str, list[str]] = {}
    for (name, dtype), measured in results.items():
        sizes.setdefault(name, []).append(f"{measured.elements / 1e6:,.4g}M {dtype}")
    return "\n".join(
        f"- **{WORKS[name].label}** (`{name}`): {WORKS[name].title}; {', '.join(of)}; chunks of "
        f"{WORKS[name].chunk:,}"
        for name, of in sizes.items()
    )
