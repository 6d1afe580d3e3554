"""Deviations of float32 from their mean, computed in float32 as in NumPy's own `var`.

Dask divides a sum by a number of int64, so that the mean is float64, and so are the deviations and
their squares, which are added up in float32 again. Most of such a kernel's time goes into these
conversions. They gain little: the sum is rounded to float32 before it is divided, and rounding the
mean again adds as much at most,

    sum((a - near)**2) = sum((a - mean)**2) + n * (mean - near)**2,

which is lost in the other rounding unless the mean is a million times as large as the deviations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from gpusched.fusion.expression import Apply, Leaf, Node, Reduce, Scalar

NARROW = np.dtype(np.float32)


@dataclass(frozen=True)
class Squares:
    """What squares that are added up in float32 are of."""

    value: Node
    """Of float32."""
    mean: Node
    """Of float32 or float64."""
    total: Reduce
    """What the mean is made of."""
    number: int
    """How many are added up."""


def squares(
    node: Node, axes: tuple[int, ...], constants: Mapping[int, np.ndarray]
) -> Squares | None:
    """Return what is squared, if a sum is one of squares of deviations of float32 from their mean.

    Parameters
    ----------
    node
        What is added up.
    axes
        Along which, as in `Reduce`.
    constants
        By register, arrays that are the same for all chunks.
    """
    if node.dtype != NARROW:
        return None
    square = node.arguments[0] if _is(node, "astype") else node
    difference = square.arguments[0] if _is(square, "square") else None
    if not _is(difference, "subtract"):
        return None
    value, mean = _narrow(difference.arguments[0]), difference.arguments[1]
    if not _is(mean, "divide"):
        return None
    total, count = _narrow(mean.arguments[0]), mean.arguments[1]
    if not isinstance(total, Reduce) or (total.combine, total.axes) != ("add", axes):
        return None
    lengths = (1,) * (node.ndim - mean.ndim) + mean.shape
    along = value.shape == node.shape and all(lengths[axis] == 1 for axis in axes)
    same = total.argument is value and total.dtype == value.dtype == NARROW
    number = math.prod(node.shape[axis] for axis in axes)
    exact = along and same and _is_all(count, number, constants)
    return Squares(value, mean, total, number) if exact else None


def _is(node: Node | None, operation: str) -> TypeGuard[Apply]:
    return isinstance(node, Apply) and node.operation == operation


def _is_all(node: Node, number: int, constants: Mapping[int, np.ndarray]) -> bool:
    """Return whether all elements are this number, in all chunks."""
    while isinstance(node, Apply) and node.operation in ("astype", "astype_int64"):
        node = node.arguments[0]
    if isinstance(node, Scalar):
        return bool(node.value == number)
    array = constants.get(node.register) if isinstance(node, Leaf) else None
    return array is not None and bool(np.all(array == number))


def _narrow(node: Node) -> Node:
    """Return what a number of float64 is, if it is one of float32."""
    if _is(node, "astype") and node.arguments[0].dtype == NARROW:
        return node.arguments[0]
    return node
