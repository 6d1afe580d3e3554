"""Sums of squares of what differs from a mean: found among launches, to be joined slab by slab.

A mean is known when the last row has been read, so that deviations from it read all rows again.
But those of some rows from their own mean can be joined to those of the rows before:

    M = M_a + M_b + (mean_b - mean_a)**2 * a * b / (a + b)

for `a` rows whose squares add up to ``M_a``, and `b` more. An error in the mean of some rows counts
here, where one in the mean of all would not, so that only sums in float64 are exact enough.

T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing
sample variances", STAN-CS-79-773 (1979).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusched.fusion.generate import loop_sizes, loop_strides
from gpusched.fusion.kernel import Access
from gpusched.fusion.plan import Launch, Registers

FLOATS = frozenset(["float32", "float64"])

EXACT = "float64"
"""What the sums are accumulated in that means are made of."""


@dataclass(frozen=True)
class Deviations:
    """A launch that adds up squares, and where it has the mean from."""

    squares: Launch
    sums: Launch
    """Adds up the same values."""
    place: int
    """Which of its results that is."""
    given: int
    """Which input of `squares` is the mean, or the sum if that divides it."""
    count: int | None = None
    """Which input of `squares` divides it, if one does."""
    number: int | None = None
    """Which constant of `squares` divides it, if one does."""
    mean: Launch | None = None
    """What divides the sum, for the whole chunk; None if `squares` does."""

    @property
    def size(self) -> int:
        """How many sums there are."""
        return math.prod(self.squares.outputs[0].shape)

    @property
    def places(self) -> list[int]:
        """Inputs of `squares` that each slab has of its own."""
        return [self.given] if self.count is None else [self.given, self.count]

    def of_slab(self) -> dict[int, np.ndarray]:
        """Return room for `places`."""
        inputs = self.squares.kernel.kernel.inputs
        return {place: np.empty(self.size, inputs[place].dtype) for place in self.places}


def found(
    squares: Launch,
    sums: Iterable[Launch],
    means: Iterable[Launch],
    arrays: Registers,
    constants: Collection[int],
) -> Deviations | None:
    """Return what a launch takes squares of deviations from, if it does nothing else.

    Parameters
    ----------
    squares
        The launch.
    sums
        Launches that go through the same rows, and may give the sums that the mean is made of.
    means
        Launches that may divide such sums.
    arrays
        What the registers held.
    constants
        Registers that hold the same for all chunks.
    """
    values = _Values()
    difference = _difference(squares, values)
    if difference is None:
        return None
    apart, mean, dtype = difference
    divides: Launch | None = None
    quotient = values.exact(mean, dtype)
    if quotient[0] == "register":
        results = ((each, k) for each in means for k in range(len(each.outputs)))
        of_mean = (result for result in results if quotient == _written(*result))
        divides, result = next(of_mean, (None, 0))
        quotient = ("",) if divides is None else _quotient(divides, result, values, dtype)
    if quotient[0] != "divide":
        return None
    *_, total, count = quotient
    if not _is(values.plain(count), _sizes(squares)[0], arrays, constants):
        return None
    given = values.parts(total)[1]
    if divides is not None:
        # It runs after the last slab, and before what was postponed with it.
        if not set(divides.inputs) <= {given, *constants}:
            return None
        given = divides.outputs[result].register
    for each in sums:
        for place, output in enumerate(each.kernel.kernel.outputs):
            same = values.parts(total) == _written(each, place) and _adds(each, place)
            if same and output.dtype == EXACT and values.of(each, output.value) == apart:
                made = Deviations(squares, each, place, squares.inputs.index(given), mean=divides)
                divided = _divided(made, values, count) if divides is None else made
                return divided if divided is not None and _go_alike(divided) else None
    return None


def _divided(pattern: Deviations, values: _Values, count: int) -> Deviations | None:
    """Return deviations with what they divide a sum by, if that can be another for each slab."""
    launch = pattern.squares
    kernel = launch.kernel.kernel
    first = len(kernel.inputs)
    given = range(first + len(kernel.parameters))
    plain = values.plain(count)
    (place,) = (k for k in given if values.parts(values.of(launch, k)) == plain)
    uses = [each for statement in kernel.statements for each in statement.arguments]
    if uses.count(place) > 1:
        return None
    by_array = place < first
    return replace(pattern, count=place) if by_array else replace(pattern, number=place - first)


def _go_alike(pattern: Deviations) -> bool:
    """Return whether both launches go through the same rows in the same order."""
    squares, sums = pattern.squares, pattern.sums
    if _sizes(squares) != _sizes(sums) or squares.kernel.kernel.loops != sums.kernel.kernel.loops:
        return False
    way = _way(sums, len(sums.inputs) + pattern.place)
    if {_way(squares, pattern.given), _way(squares, len(squares.inputs))} != {way}:
        return False
    if pattern.count is not None:
        own = _way(squares, pattern.count)
        if own != way and any(access is not Access.BROADCAST for access, _ in own):
            return False
    ways = {register: _way(sums, k) for k, register in enumerate(sums.inputs)}
    return all(
        k in pattern.places or ways.get(register) == _way(squares, k)
        for k, register in enumerate(squares.inputs)
    )


def _way(launch: Launch, operand: int) -> tuple[tuple[Access, int], ...]:
    """Return how an operand moves with each loop, and by how many elements where that is told."""
    kernel = launch.kernel.kernel
    steps = loop_strides(kernel, launch.numbers)
    accesses = kernel.operands[operand].access
    return tuple((access, steps.get((operand, level), 0)) for level, access in enumerate(accesses))


def _sizes(launch: Launch) -> tuple[Any, ...]:
    return loop_sizes(launch.kernel.kernel, launch.numbers)


class _Values:
    """Numbers the values of launches, so that equal ones have the same number.

    Converting float32 to float64, as deviations of float32 are, changes none.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._parts: list[tuple[Any, ...]] = []
        self._launches: dict[int, list[int]] = {}

    def parts(self, number: int) -> tuple[Any, ...]:
        """Return what a value is: its kind and what that needs, or an operation on others."""
        return self._parts[number]

    def plain(self, number: int) -> tuple[Any, ...]:
        """Return what a value is converted from."""
        parts = self._parts[number]
        while parts[0] in ("astype", "astype_int64"):
            parts = self._parts[parts[-1]]
        return parts

    def exact(self, mean: int, dtype: str) -> tuple[Any, ...]:
        """Return what a mean of numbers of a dtype is, before it may be rounded to float32.

        Those of float32 need no other: their squares grow by the square of how far it is rounded.
        """
        parts = self._parts[mean]
        rounded = parts[0] == "astype" and parts[2] == dtype == "float32"
        return self._parts[parts[-1]] if rounded else parts

    def of(self, launch: Launch, value: int | str) -> int:
        """Return the number of a value of a launch."""
        if isinstance(value, str):
            return self._number("literal", value)
        if id(launch) not in self._launches:
            self._launches[id(launch)] = self._all(launch)
        return self._launches[id(launch)][value]

    def _number(self, *parts: Any) -> int:
        if parts not in self._numbers:
            self._numbers[parts] = len(self._parts)
            self._parts.append(parts)
        return self._numbers[parts]

    def _all(self, launch: Launch) -> list[int]:
        kernel = launch.kernel.kernel
        numbers = [self._number("register", register) for register in launch.inputs]
        for dtype, value in zip(kernel.parameters, launch.numbers, strict=False):
            numbers.append(self._number("number", dtype, value))
        for each in kernel.statements:
            arguments = [
                self._number("literal", a) if isinstance(a, str) else numbers[a]
                for a in each.arguments
            ]
            if (each.operation, each.operand, each.dtype) == ("astype", "float32", "float64"):
                numbers += arguments
            else:
                parts = each.operation, each.output, each.dtype, *arguments
                numbers.append(self._number(*parts))
        return numbers


def _difference(launch: Launch, values: _Values) -> tuple[int, int, str] | None:
    """Return (value, mean, dtype) of a launch that adds up squares of such differences, or None."""
    (output, *others) = launch.kernel.kernel.outputs
    if others or output.value_dtype not in FLOATS or not _adds(launch, 0):
        return None
    square = values.parts(values.of(launch, output.value))
    if square[0] == "astype":
        # Each square may be rounded; the values, or their mean in float64, may not.
        square = values.parts(square[-1])
    if square[0] != "square":
        return None
    apart = values.parts(square[-1])
    return (apart[-2], apart[-1], apart[2]) if apart[0] == "subtract" else None


def _adds(launch: Launch, place: int) -> bool:
    """Return whether a result adds up values over the outermost loop, and no other."""
    kernel = launch.kernel.kernel
    output = kernel.outputs[place]
    return (
        output.combine == "add"
        and output.dtype in FLOATS
        and kernel.loops[0] == "reduce"
        and kernel.loops.count("reduce") == 1
        and launch.outputs[place].axes is None
    )


def _written(launch: Launch, place: int) -> tuple[Any, ...]:
    return "register", launch.outputs[place].register


def _quotient(launch: Launch, place: int, values: _Values, dtype: str) -> tuple[Any, ...]:
    """Return what a launch divides for one of its results, element by element; of no kind if it
    does not."""
    kernel = launch.kernel.kernel
    output = kernel.outputs[place]
    if kernel.loops != ("map",) or launch.outputs[place].axes is not None:
        return ("",)
    parts = values.exact(values.of(launch, output.value), dtype)
    single = _sizes(launch) == (1,)
    in_order = single or (kernel.inputs and kernel.inputs[0].access == (Access.UNIT,))
    if parts[0] != "divide" or not in_order or values.of(launch, 0) != parts[-2]:
        return ("",)
    return parts


def _is(count: tuple[Any, ...], rows: int, arrays: Registers, constants: Collection[int]) -> bool:
    """Return whether a divisor is the number of rows, for every chunk."""
    if count[0] == "register":
        return count[1] in constants and bool(np.all(arrays[count[1]] == rows))
    return bool(count[0] == "number" and count[-1] == rows)
