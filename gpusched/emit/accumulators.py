"""Lines that join what takes several accumulators: moments and firsts.

Moments are a mean, what rounding that loses, and squares of deviations from both. Values are taken
off the mean of those before them, a stretch of values at a time (`gpusched.emit.scalars.reopened`
and `settled`):

    mean' = mean + d / n        squares' = squares + s - d**2 / n

for `n` values in all, deviations of the new ones from `mean` that add up to `d`, and squares of
these that add up to `s`. Nothing as large as the values is ever squared or added up, and where no
more values are new than have gone before, no more than half of `s` is subtracted again, as
``d**2 <= n / 2 * s``: a large mean costs no digits. The first few are taken off the first of them,
the square of whose distance from their mean is at most `n` times their variance: of eight values
that costs three bits. Nor does rounding the mean cost any, since what that loses is kept beside it.
A constant deviates from itself by nothing, and has a variance of exactly 0.

T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing
sample variances", STAN-CS-79-773 (1979).

A first is the first of the largest or least values, and the place of it. Which one comes first
follows from values and places alone: a larger value, NaN before all others, and of values that are
alike the one with the lower place. So blocks, threads and parts of an array may be joined in any
order. Nothing is joined to the least value there is, at place 0: where the result is that value,
all values are, and the first one has place 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.emit.kernel import Output

ZERO = "float64(0.0)"


def start_block(k: int) -> list[str]:
    """Return the lines that begin a block of moments with nothing in it."""
    return [f"apart{k} = {ZERO}", f"square{k} = {ZERO}"]


def take(k: int, value: str) -> list[str]:
    """Return the lines that add a value to a block."""
    return [
        f"away{k} = deviation({value}, mean{k})",
        f"apart{k} = apart{k} + away{k}",
        f"square{k} = square{k} + away{k} * away{k}",
    ]


def join_block(
    k: int, places: Sequence[str], so_far: Sequence[str], count: str, more: str
) -> list[str]:
    """Return the lines that join a block of `more` values to the moments of `count`.

    Parameters
    ----------
    k
        The number of their first output.
    places
        Where the moments of all go.
    so_far
        The moments of those before.
    count, more
        How many values there are, in source.
    """
    mean, rest, squares = so_far
    given = f"{mean}, opened{k} + apart{k}, known{k} + square{k}, {count} + {more}"
    return [
        f"opened{k}, known{k} = reopened({rest}, {squares}, {count})",
        f"{', '.join(places)} = settled({given})",
    ]


_SOONER = {"first_maximum": "is_above", "first_minimum": "is_below"}


def sooner(output: Output, value: str, other: str) -> str:
    """Return in source whether a value comes before another one, whatever their places."""
    assert output.combine is not None
    return f"{_SOONER[output.combine]}({value}, {other})"


def comes_first(output: Output, value: str, place: str, other: str, other_place: str) -> str:
    """Return in source whether a value at a place comes before another one."""
    alike = f"not {sooner(output, other, value)}"
    return f"{sooner(output, value, other)} or ({place} < {other_place} and {alike})"
