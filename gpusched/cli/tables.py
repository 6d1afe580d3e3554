"""Rows of text, one below the other."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines whose columns are aligned.

    Examples
    --------
    >>> from gpusched.cli.tables import table
    >>> print(table([("JOB", "STATE"), ("local-1", "running")]))
    JOB      STATE
    local-1  running
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
