"""The page of figures: what is measured is replaced, what people wrote beside it stays."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import plot, report
from tests.benchmarks.results import Results
from tests.benchmarks.works import WORKS

BEGIN = "<!-- measured: make bench writes from here -->"
END = "<!-- measured: to here -->"


def write(path: Path, results: Results) -> None:
    """Write tables and plot to the page, between its marks; a page without them is begun.

    Raises
    ------
    ValueError
        If the page has only one of the marks, or another order.
    """
    picture = path.with_suffix(".svg")
    replace(path, body(results, picture.name))
    plot.write(picture, results)


def replace(path: Path, measured: str) -> None:
    """Write what was measured to a page, between its marks; a page that is not there is begun.

    Raises
    ------
    ValueError
        If the page has only one of the marks, or another order.
    """
    title = path.stem.capitalize()
    text = path.read_text() if path.exists() else f"# {title}\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} lacks {BEGIN!r} or, after it, {END!r}: add a line with each")
    path.write_text(f"{before}{BEGIN}\n\n{measured}\n\n{END}{after}")


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
        lines = dict(line.removeprefix("- ").split(": ", 1) for line in run.splitlines())
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
