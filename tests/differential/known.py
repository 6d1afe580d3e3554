"""Defects that are known, in one table: the test of the fixed seeds expects exactly these."""

from __future__ import annotations

KNOWN: dict[tuple[str, int], str] = {
    ("functions", 5): "issue 25, A10: a 0-d array instead of a NumPy scalar",
    ("functions", 29): "issue 25, A10: a 0-d array instead of a NumPy scalar",
    ("functions", 35): "issue 25, B3: a warning names another operation",
}
"""By generator and seed, what is wrong; a row whose case passes is an error."""
