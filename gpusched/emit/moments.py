"""Lines that join moments: a mean, what rounding that loses, and squares of deviations from both.

Values are taken off the mean of those before them, a block of values at a time, and one line joins
what that leaves to the moments so far (`gpusched.emit.scalars.join_deviations`):

    mean' = mean + d / n        squares' = squares + s - d**2 / n

for `n` values in all, deviations of the new ones from `mean` that add up to `d`, and squares of
these that add up to `s`. Nothing as large as the values is ever squared or added up, and no more
than half of `s` is subtracted again once as many values have gone before, so that a large mean
costs no digits. Nor does rounding the mean, since what that loses is kept beside it. A constant
deviates from itself by nothing, and has a variance of exactly 0.

T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing
sample variances", STAN-CS-79-773 (1979).
"""

from __future__ import annotations

from collections.abc import Sequence

ZERO = "float64(0.0)"


def start(k: int) -> list[str]:
    """Return the lines that begin a block with nothing in it."""
    return [f"apart{k} = {ZERO}", f"square{k} = {ZERO}"]


def take(k: int, value: str) -> list[str]:
    """Return the lines that add a value to a block."""
    return [
        f"away{k} = deviation({value}, mean{k})",
        f"apart{k} = apart{k} + away{k}",
        f"square{k} = square{k} + away{k} * away{k}",
    ]


def join(k: int, places: Sequence[str], so_far: Sequence[str], count: str, more: str) -> str:
    """Return the line that joins a block of `more` values to the moments of `count`.

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
    given = ", ".join([*so_far, count, f"apart{k}", f"square{k}", more])
    return f"{', '.join(places)} = join_deviations({given})"
