"""Squares of deviations of float32 from their mean, added up while the mean is.

A mean is known when all has been read, so that deviations from it read all once more. Deviations
from any other number `k` need not wait, and give the same but for rounding:

    sum((a - mean)**2) = sum((a - k)**2) - (sum(a) - n * k)**2 / n

In float64, with the first number for `k`, nothing of float32 is lost. That number is one of those
whose deviations are wanted, so that what is subtracted is at most `n` times what is left, and about
as much where the first number is like the others.

Sums of columns are not compensated: `n` terms that are nearly alike may all round to one side, by
`n` units of float64 in all, which are `n * n` units of what is left. Longer columns than float32
hides that in are read twice.

T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance: analysis and
recommendations", The American Statistician 37 (1983), on shifted data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.fusion.expression import Apply, Node
from gpusched.fusion.narrowing import NARROW, Squares

if TYPE_CHECKING:
    from gpusched.fusion.record import Recorder

WIDE = np.dtype(np.float64)

LONG = 1 << 18
"""Numbers of a column up to which an outlier in front costs no more digits than float32 does."""


def is_exact(squares: Squares) -> bool:
    """Return whether squares that are added up that way are as exact as float32 has them."""
    return len(squares.total.axes) == squares.value.ndim or squares.number <= LONG


def deviations(recorder: Recorder, squares: Squares, axes: tuple[int, ...]) -> Node:
    """Return the node of a sum of squares that is computed while the mean is.

    Parameters
    ----------
    recorder
        Where the sum that the mean is made of is recorded, and not computed so far.
    squares
        What is squared.
    axes
        Along which, as in `Reduce`; they keep length 1 in the result.
    """

    def calculate(operation: str, *operands: Node) -> Node:
        return recorder.apply(operation, operands, WIDE)

    value = squares.value
    count = recorder.cast(float(squares.number), WIDE)
    wide, first = recorder.cast(value, WIDE), recorder.cast(_first(recorder, value, axes), WIDE)
    apart = calculate("square", calculate("subtract", wide, first))
    total = recorder.accumulated(squares.total, wide)
    around = recorder.reduce("add", apart, axes, keepdims=True)
    rest = calculate("subtract", total, calculate("multiply", count, first))
    between = calculate("divide", calculate("square", rest), count)
    left = calculate("subtract", around, between)
    # Rounding may leave less than nothing of numbers that are all alike.
    positive = calculate("maximum", left, recorder.cast(0.0, WIDE))
    return recorder.cast(positive, NARROW)


def _first(recorder: Recorder, value: Node, axes: tuple[int, ...]) -> Node:
    """Return the first number along some axes, as an array that exists."""
    index = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(value.ndim))

    def first(array: Any) -> Any:
        return array[index]

    if not isinstance(value, Apply):
        return recorder.view(value, first, repeats=False)
    # Warnings come with the other elements.
    with np.errstate(all="ignore"):
        found = recorder.view(value, first, repeats=False)
        recorder.register(found)
    return found
