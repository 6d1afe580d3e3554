"""Defects that are known, in one table: the test of the fixed seeds expects exactly these."""

from __future__ import annotations

KNOWN: dict[tuple[str, int], str] = {
    ("functions", 31): "issue 25, B3: no warning of elements that are sliced away afterwards",
}
"""By generator and seed, what is wrong; a row whose case passes is an error."""
