"""Defects that are known, in one table: the test of the fixed seeds expects exactly these."""

from __future__ import annotations

KNOWN: dict[tuple[str, int], str] = {
    ("functions", 13): "issue 25, A10: a 0-d array instead of a NumPy scalar",
    ("functions", 23): "issue 25, A10: a 0-d array instead of a NumPy scalar",
    ("functions", 25): "issue 25, A10: a 0-d array instead of a NumPy scalar",
    ("programs", 16): "issue 25, B3: no warning of the remainder of a division by zero",
}
"""By generator and seed, what is wrong; a row whose case passes is an error."""
