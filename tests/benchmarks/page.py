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
    """Return the part that is measured."""
    image = f"![How many times faster than dask on threads, by work]({picture})"
    return "\n\n".join([runs(results), image, works(results), report.tables(results)])


def runs(results: Results) -> str:
    """Return the date, machine, versions and command of each run that the results come from."""
    return "\n\n".join(dict.fromkeys(measured.run for measured in results.values()))


def works(results: Results) -> str:
    """Return what each work is, and how many elements it has."""
    sizes: dict[str, list[str]] = {}
    for (name, dtype), measured in results.items():
        sizes.setdefault(name, []).append(f"{measured.elements / 1e6:,.4g}M {dtype}")
    return "\n".join(
        f"- **{name}**: {WORKS[name].title}; {', '.join(of)}; chunks of {WORKS[name].chunk:,}"
        for name, of in sizes.items()
    )
