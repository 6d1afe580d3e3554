"""Defects that are known, in one table: the test of the fixed seeds expects exactly these."""

from __future__ import annotations

KNOWN: dict[tuple[str, int], str] = {}
"""By generator and seed, what is wrong; a row whose case passes is an error."""
