"""Lines that join firsts: the first of the largest or least values, and the place of it.

What comes first follows from values and places alone: a larger value, NaN before all others, and of
values that are alike the one with the lower place. So blocks, threads and parts of an array may be
joined in any order. Nothing is joined to the least value there is, at place 0: where the result is
that value, all values are, and the first one has place 0.
"""

from __future__ import annotations

from gpusched.emit.kernel import Output

_SOONER = {"first_maximum": "is_above", "first_minimum": "is_below"}


def sooner(output: Output, value: str, other: str) -> str:
    """Return in source whether a value comes before another one, whatever their places."""
    assert output.combine is not None
    return f"{_SOONER[output.combine]}({value}, {other})"


def comes_first(output: Output, value: str, place: str, other: str, other_place: str) -> str:
    """Return in source whether a value at a place comes before another one."""
    alike = f"not {sooner(output, other, value)}"
    return f"{sooner(output, value, other)} or ({place} < {other_place} and {alike})"
