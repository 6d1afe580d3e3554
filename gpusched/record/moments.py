"""Means and squares of deviations from them, as exact as numbers in two passes are, or more so.

Kernels on the CPU join them block by block while they read their values once (see
`gpusched.emit.hostloops.moments`). Elsewhere, and where NaN is skipped, values are read twice:
deviations are those from a rounded mean, and how far that is from the mean is what they add up to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusched.record.chunk import LazyChunk

NARROW = np.dtype(np.float32)


class Moments(NamedTuple):
    """Moments of the values along some axes, of float64."""

    mean: Any
    rest: Any
    """What rounding the mean loses."""
    squares: Any
    """The squares of deviations from the mean, added up."""


def moments(
    a: Any, axes: tuple[int, ...], count: Any, keepdims: bool = True, skip: bool = False
) -> Moments:
    """Return the moments of an array along some axes.

    Parameters
    ----------
    a
        The array, or a lazy chunk: of real numbers, at least one.
    axes
        Which axes, none of them negative.
    count
        How many values there are; may be an array of length 1 along the axes.
    keepdims
        Whether the axes stay, with length 1.
    skip
        Whether to leave out NaN, as `count` does.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.moments import moments
    >>> found = moments(np.array([1e16, 1e16 + 2, 1e16 + 4]), (0,), 3)
    >>> float(found.mean[0] - 1e16), float(found.squares[0])
    (2.0, 8.0)
    """
    if isinstance(a, LazyChunk) and a._recorder.device.can.moments and not skip:
        nodes = a._recorder.moments(a._node, axes, keepdims)
        return Moments(*(LazyChunk(a._recorder, node) for node in nodes))
    with np.errstate(all="ignore"):
        found = _in_two_passes(a, axes, count, skip)
    return found if keepdims else Moments(*(np.squeeze(each, axes) for each in found))


def _in_two_passes(a: Any, axes: tuple[int, ...], count: Any, skip: bool) -> Moments:
    dtype = NARROW if a.dtype == NARROW else np.dtype(np.float64)
    add = np.nansum if skip else np.sum
    total = add(a, axis=axes, dtype=dtype, keepdims=True)
    missing = np.isnan(a) if skip else False
    low = np.min(np.where(missing, np.inf, a) if skip else a, axis=axes, keepdims=True)
    about = total / count
    # Rounding may take the mean of equal numbers to their neighbour.
    lost = count * np.finfo(dtype).eps * np.abs(low)
    centre = np.where(np.abs(about - low) <= lost, low, about).astype(dtype)
    away = a - centre
    if skip:
        away = np.where(missing, dtype.type(0), away)
    apart = np.sum(away, axis=axes, keepdims=True).astype(np.float64)
    square = np.sum(np.square(away), axis=axes, keepdims=True).astype(np.float64)
    return _shifted(centre.astype(np.float64), count, apart, square)


def _shifted(centre: Any, count: Any, apart: Any, square: Any) -> Moments:
    """Return the moments of values whose deviations from a number, and their squares, are given."""
    change = np.where(count == 0, 0.0, apart / count)
    left = np.maximum(square - apart * change, 0.0)
    # Squares may overflow where their sum is finite.
    squares = np.where(np.isinf(square) & np.isfinite(apart), square, left)
    mean = centre + change
    return Moments(mean, (centre - mean) + change, squares)


def joined(parts: Moments, counts: Any, axes: tuple[int, ...]) -> Moments:
    """Return the moments of what some arrays hold together, from those of each.

    Parameters
    ----------
    parts
        The moments of the arrays, side by side along some axes.
    counts
        How many values each has.
    axes
        Which axes.

    Notes
    -----
    What is added up is how far means are from each other, not the means, so that it is as exact for
    arrays of a large mean as for those of a small one.
    """

    def add(values: Any) -> Any:
        return np.sum(values, axis=axes, keepdims=True)

    with np.errstate(all="ignore"):
        count = add(counts)
        low = np.min(np.where(counts == 0, np.inf, parts.mean), axis=axes, keepdims=True)
        high = np.max(np.where(counts == 0, -np.inf, parts.mean), axis=axes, keepdims=True)
        about = add(np.where(counts == 0, 0.0, counts * parts.mean)) / count
        # Rounding may take the mean of equal numbers to their neighbour.
        centre = np.clip(about, low, high)
        away = np.where(counts == 0, 0.0, (parts.mean - centre) + parts.rest)
        change = np.where(count == 0, 0.0, add(counts * away) / count)
        squares = add(parts.squares) + add(counts * np.square(away - change))
        mean = centre + change
        return Moments(mean, (centre - mean) + change, squares)
