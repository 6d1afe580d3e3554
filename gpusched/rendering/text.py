"""Rows of text, one below the other."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

Section = tuple[str, Sequence[str], Iterable[Sequence[str]]]
"""A title, the heads of columns, and rows."""

_WIDTH = 240
"""Columns where there is no terminal."""


def printable(text: str) -> str:
    r"""Return text with what cannot be printed escaped, such as bytes of a file's name.

    Examples
    --------
    >>> from gpusched.rendering.text import printable
    >>> print(printable("größe\\udcff.py"))
    größe\udcff.py
    """
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return rows as lines whose columns are aligned, and whose cells are `printable`.

    Parameters
    ----------
    rows
        Equally long; the first may be a head.
    right
        Columns, counted from 0, whose cells end below each other instead of beginning so.

    Examples
    --------
    >>> from gpusched.rendering.text import aligned
    >>> print(aligned([("JOB", "TIME", "STATE"), ("local-1", "2 s", "running")], right=(1,)))
    JOB      TIME  STATE
    local-1   2 s  running
    """
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def titled(*sections: Section) -> str:
    """Return tables with titles, whose long cells are folded at the terminal's width."""
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(file=sys.stdout, width=width, markup=False, highlight=False)
    with console.capture() as capture:
        for title, head, rows in sections:
            console.print(title, style="bold")
            table = Table(box=None, pad_edge=False)
            for heading in head:
                table.add_column(heading, overflow="fold")
            for row in rows:
                table.add_row(*row)
            console.print(table)
            console.print()
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())
