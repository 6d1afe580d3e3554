"""Defects that are known, in one table: the test of the fixed seeds expects exactly these."""

from __future__ import annotations

KNOWN: dict[tuple[str, int], str] = {
    ("functions", 1): "issue 25, B3: a warning is lost, or names another operation",
    ("functions", 6): "issue 25, B3: a warning is lost, or names another operation",
    ("functions", 18): "issue 25, B3: a warning is lost, or names another operation",
    ("functions", 19): "issue 25, B3: a warning is lost, or names another operation",
    ("functions", 31): "issue 25, B3: a warning is lost, or names another operation",
    ("programs", 25): "issue 25, B3: a warning is lost, or names another operation",
}
"""By generator and seed, what is wrong; a row whose case passes is an error."""
