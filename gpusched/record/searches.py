"""Places among sorted numbers (`digitize`, `searchsorted`, `interp`, histograms), and `isin`.

The sorted numbers are a table that kernels search for each element, in as many steps for all of
them, so that no step waits for a guess. Histograms count what such kernels give.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import itemgetter
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import HALF
from gpusched.emit.floatingpoint import REPORTED, note
from gpusched.emit.operations import SEARCHED
from gpusched.plan.expression import Node, UnfusibleError
from gpusched.plan.plan import Register
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, compute, node_of, node_operand, operand, viewed
from gpusched.record.handlers import records
from gpusched.record.record import Recorder

PLACE = np.dtype(np.intp)
"""Of places among sorted numbers."""

SHORT = np.dtype(np.int32)
"""Of places among equal bins: AVX2 converts several floats at once to it and back, and none to 64
bits. One of 100 bins is found in 3.1 ns instead of 5.5 to 6.2 (8 million float64, one thread)."""

TOGETHER = 65536
"""Elements that NumPy's histograms count in one go: weights are added up in that order."""


SEVERAL = 16
"""The most values that each element is compared with: with three, what a mask chooses of 10 MB of
bytes takes 11 ms, and 34 by NumPy."""


@records(np.isin)
def _isin(recorder: Recorder, element: Any, test_elements: Any, assume_unique: Any = False,
          invert: Any = False, *, kind: Any = None) -> Any:  # fmt: skip
    """Record which elements are equal to some of several values."""
    del assume_unique  # It says how to find out.
    lazy = isinstance(test_elements, LazyChunk)
    values = node_operand(recorder, test_elements if lazy else np.asarray(test_elements))
    known = isinstance(element, LazyChunk) and type(invert) is bool and kind is None
    if not known or not 0 < math.prod(values.shape) <= SEVERAL:
        raise UnfusibleError(GraphBreak.OPTION, "more values to compare with, none, or a kind")
    if element.dtype.kind not in "biuf" or values.dtype.kind not in "biuf":
        raise UnfusibleError(GraphBreak.DTYPE, f"{element.dtype} compared with {values.dtype}")
    places = np.ndindex(values.shape)
    each = [element == viewed(LazyChunk(recorder, values), itemgetter((*k, ...))) for k in places]
    found = reduce(np.logical_or, each)
    found = ~found if invert else found
    return LazyChunk(recorder, node_of(found), fresh=True)  # an array, also without axes


@own("portable")
def padded(numbers: np.ndarray, dtype: np.dtype, steps: int) -> np.ndarray:
    """Return sorted numbers as kernels search them: the last one again until there are enough.

    Where they are not sorted, or some are NaN, NumPy repeats the calls: it has an error for that,
    or another order.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.searches import padded
    >>> padded(np.array([1, 5]), np.dtype("f8"), 2)
    array([1., 5., 5.])
    """
    found = numbers.astype(dtype)
    if not (found[1:] >= found[:-1]).all() or found[0] != found[0]:
        note(REPORTED)
    return np.pad(found, (0, (1 << steps) - 1 - len(found)), mode="edge")


def searched(array: LazyChunk, numbers: Any, side: str) -> Any:
    """Record where elements are among sorted numbers.

    Parameters
    ----------
    array
        The elements.
    numbers
        One axis of them: a lazy chunk, or an array that does not depend on the chunk's values.
    side
        ``"left"`` for how many numbers are less than an element, ``"right"`` for how many are not
        more. NaN is more than all.

    Raises
    ------
    UnfusibleError
        Where no kernel can do it; the message is the reason.
    """
    node, steps = _sorted(array, numbers)
    recorder, length = array._recorder, node.shape[0]
    common = np.promote_types(array.dtype, node.dtype)
    common = np.dtype(np.float32) if common == HALF else common
    if not {array.dtype.kind, node.dtype.kind, common.kind} <= set("iuf"):
        raise UnfusibleError(GraphBreak.DTYPE, f"a search of {array.dtype} among {node.dtype}")
    table = recorder.table(recorder.derived(node, padded, common, steps))
    value = recorder.cast(array._node, common)
    found = recorder.apply(f"search_{side}", (value, table, recorder.number(steps, PLACE)), PLACE)
    place = LazyChunk(recorder, found, fresh=True)
    return place if length == (1 << steps) - 1 else np.minimum(place, length)


def _sorted(array: Any, numbers: Any) -> tuple[Node, int]:
    """Return the node of the numbers that an array's elements are searched among, and the steps."""
    if not isinstance(array, LazyChunk) or not array.shape:
        raise UnfusibleError(GraphBreak.OPERAND, "elements that are not an array")
    recorder = array._recorder
    node = operand(recorder, numbers)
    if not isinstance(node, Node) or node.ndim != 1:
        raise UnfusibleError(GraphBreak.OPERAND, "numbers to search that are not one axis")
    steps = node.shape[0].bit_length()
    if not 0 < steps <= SEARCHED or 0 in array.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, f"a search among {node.shape[0]:,} numbers")
    return node, steps


@records(np.digitize)
def _digitize(recorder: Recorder, x: Any, bins: Any, right: Any = False) -> Any:
    return searched(x, bins, "left" if right else "right")


@records(np.searchsorted)
def _searchsorted(recorder: Recorder, a: Any, v: Any, side: Any = "left") -> Any:
    if side not in ("left", "right"):
        raise UnfusibleError(GraphBreak.OPTION, f"option side {side!r}")
    return searched(v, a, side)


FAR = 2.0**970
"""What another number has to be at least so that a difference of finite numbers overflows."""


@own("portable")
def lines(values: np.ndarray, points: np.ndarray, left: float | None,
          right: float | None) -> np.ndarray:  # fmt: skip
    """Return the lines between points as kernels take them (`emit.scalars.interpolated`).

    Parameters
    ----------
    values, points
        One value for each of some sorted points; more points may follow.
    left, right
        What is before the first point and after the last one; the values there if None.

    Notes
    -----
    Slopes are NumPy's, which computes a line from its left end, or from the other if that is NaN;
    if both are, equal values are the result. From the left it is NaN where the slope is, where an
    infinite slope meets an infinite value, and where the left end is infinite: then what the other
    end gives is the same everywhere between them, so that it is the line's constant. It would not
    be only where distances of finite numbers overflow; NumPy repeats the calls there.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.searches import lines
    >>> lines(np.array([1, 5]), np.array([2.0, 4.0]), None, 9.0).reshape(3, 4)
    array([[nan, nan,  1.,  1.],
           [ 2.,  2.,  1.,  3.],
           [ 4., nan,  5.,  9.]])
    """
    found = np.full_like(points, np.nan, shape=(len(values) + 1, 4))
    low, slope, first, constant = (found[:, k] for k in range(4))
    low[1:], first[1:] = points[: len(values)], values
    start, stop, one, other = low[1:-1], low[2:], first[1:-1], first[2:]
    with np.errstate(all="ignore"):
        width = stop - start
        slopes = (other - one) / width
        from_left = slopes * np.where(np.isinf(start), np.inf, 1.0) + one
        from_right = slopes * np.where(np.isinf(stop), -np.inf, -1.0) + other
    both = np.where(one == other, one, np.nan)
    constant[1:-1] = np.where(np.isnan(from_right), both, from_right)
    slope[1:-1] = np.where(np.isnan(from_left), np.nan, slopes)
    far = (np.isfinite(start) & (start <= -FAR)) | (np.isfinite(stop) & (stop >= FAR))
    if (far & np.isinf(width)).any():
        note(REPORTED)
    constant[0] = first[0] = values[0] if left is None else left
    constant[-1] = values[-1] if right is None else right
    return found.reshape(-1)


@records(np.interp)
def _interp(recorder: Recorder, x: Any, xp: Any, fp: Any, left: Any = None,
            right: Any = None) -> Any:  # fmt: skip
    """Record values between those at sorted points."""
    node, steps = _sorted(x, xp)
    values, count = operand(recorder, fp), node.shape[0]
    real = all(each.dtype.kind in "biuf" for each in (x, node)) and values.dtype.kind in "biuf"
    if not real or not all(end is None or isinstance(end, int | float) for end in (left, right)):
        raise UnfusibleError(GraphBreak.DTYPE, "interpolation of what are not real numbers")
    if not isinstance(values, Node) or values.shape != node.shape or count < 2:
        raise UnfusibleError(GraphBreak.OPERAND, "values that are not one for each of two points")
    wide = np.dtype(np.float64)
    sorted_points = recorder.derived(node, padded, wide, steps)
    points = Register(sorted_points.register)
    between = recorder.derived(values, lines, points, left, right)
    tables = recorder.table(sorted_points), recorder.table(between)
    arguments = (recorder.cast(x._node, wide), *tables, recorder.cast(count, PLACE),
                 recorder.number(steps, PLACE))  # fmt: skip
    found = recorder.apply("interpolate", arguments, wide)
    return LazyChunk(recorder, found, fresh=True)


@own("portable")
def counted(labels: np.ndarray, count: int, weights: np.ndarray | None = None,
            cumulated: bool = False) -> np.ndarray:  # fmt: skip
    """Return how many labels there are of each in ``range(count)``, or what their weights add to.

    Parameters
    ----------
    labels
        Integers, none of which is negative or more than `count`.
    count
        Those that are counted.
    weights
        One for each label.
    cumulated
        Whether NumPy takes totals up to each bin from each other, so that a weight which is NaN or
        infinite is in all bins behind its own. It repeats the calls then.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.searches import counted
    >>> counted(np.array([0, 2, 3, 2]), 3)
    array([1, 0, 2])
    """
    labels = labels.reshape(-1)
    flat = None if weights is None else weights.reshape(-1)
    if cumulated and flat is not None and not np.isfinite(flat).all():
        note(REPORTED)
    found = np.zeros_like(labels, np.intp if flat is None else flat.dtype, shape=count)
    together = TOGETHER if type(found) is np.ndarray else len(labels)
    for start in range(0, len(labels), together):
        part = slice(start, start + together)
        own = None if flat is None else flat[part]
        found += np.bincount(labels[part], own, count + 1)[:count].astype(found.dtype)
    return found


@own("portable")
def counted_on_grid(labels: np.ndarray, sizes: tuple[int, ...],
                    weights: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Return the same of all labels, by the bins of several axes, without the outermost ones.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.searches import counted_on_grid
    >>> counted_on_grid(np.array([5, 5, 0]), (3, 4))
    array([[2., 0.]])
    """
    found = np.bincount(labels.reshape(-1), weights, math.prod(sizes))
    return found.reshape(sizes).astype(float)[(slice(1, -1),) * len(sizes)]


@records(np.histogram)
def _histogram(recorder: Recorder, a: Any, bins: Any = 10, range: Any = None,  # noqa: A002
               density: Any = None, weights: Any = None) -> Any:  # fmt: skip
    """Record a histogram, if its bins do not depend on the chunk's values."""
    if density:
        raise UnfusibleError(GraphBreak.OPTION, "option density")
    _check(recorder, a, weights)
    cumulated = False
    with np.errstate(all="ignore"):  # NumPy looks at what is inside only.
        if type(bins) is int and type(range) in (tuple, list) and len(range) == 2:
            labels, edges = _in_equal_bins(a, bins, *range)
        elif _are_edges(bins):
            # Integers NumPy adds up as integers there.
            if weights is not None and (weights.dtype.kind != "f" or weights.dtype == HALF):
                raise UnfusibleError(GraphBreak.DTYPE, f"weights of {weights.dtype}")
            labels, edges = _between(a, bins), bins
            cumulated = weights is not None
        else:
            raise UnfusibleError(GraphBreak.VALUES, "bins that depend on a chunk's values")
    return compute(recorder, counted, (labels, len(edges) - 1, weights, cumulated), {}), edges


@records(np.histogramdd)
def _histogramdd(recorder: Recorder, sample: Any, bins: Any = 10, range: Any = None,  # noqa: A002
                 density: Any = None, weights: Any = None) -> Any:  # fmt: skip
    """Record a histogram of several arrays of one axis each."""
    if density or type(sample) not in (tuple, list) or not sample:
        raise UnfusibleError(GraphBreak.OPTION, "option density, or a sample that is one array")
    for each in sample:
        _check(recorder, each, weights)
        if each.shape != sample[0].shape or each.ndim != 1:
            raise UnfusibleError(GraphBreak.OPERAND, "samples of several lengths")
    given = [bins] * len(sample) if type(bins) is int else bins
    ranges: Any = [None] * len(sample) if range is None else range
    if not all(type(v) in (tuple, list) and len(v) == len(sample) for v in (given, ranges)):
        raise UnfusibleError(GraphBreak.OPERAND, "bins that are not one for each axis")
    dtype = np.result_type(*(each.dtype for each in sample))
    labels: Any = 0
    found: list[Any] = []
    with np.errstate(all="ignore"):
        for each, own, ends in zip(sample, given, ranges, strict=True):
            if type(own) is int and type(ends) in (tuple, list) and len(ends) == 2:
                edges = np.histogramdd([np.empty(0)], [own], [ends])[1][0]
            elif _are_edges(own):
                edges = own
            else:
                raise UnfusibleError(GraphBreak.VALUES, "bins that depend on a chunk's values")
            value = each.astype(dtype)
            place = searched(value, edges, "right")
            place = np.where(value == edges[-1], place - 1, place)
            labels = labels * (len(edges) + 1) + place
            found.append(edges)
    sizes = tuple(len(edges) + 1 for edges in found)
    return compute(recorder, counted_on_grid, (labels, sizes, weights), {}), found


def _check(recorder: Recorder, a: Any, weights: Any) -> None:
    """Raise `UnfusibleError` for what histograms by kernels do not take."""
    if not isinstance(a, LazyChunk) or not a.shape or a.dtype.kind not in "iuf" or a.dtype == HALF:
        raise UnfusibleError(GraphBreak.DTYPE, "a histogram of what are not numbers")
    # CuPy's own have their edges in device memory, and add up weights in any order.
    on_host = recorder.device.can.host_memory
    if 0 in a.shape or not (on_host or (recorder.moved and weights is None)):
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a histogram on a GPU, or of nothing")
    if weights is not None and not (
        isinstance(weights, LazyChunk)
        and weights.shape == a.shape
        and np.can_cast(weights.dtype, np.double)
    ):
        raise UnfusibleError(GraphBreak.OPERAND, "weights that are not one number for each element")


def _are_edges(bins: Any) -> bool:
    return isinstance(bins, LazyChunk | np.ndarray) and bins.ndim == 1 and len(bins) > 1


def _between(a: LazyChunk, edges: Any) -> Any:
    """Return which bin each element is in, or how many there are where it is in none."""
    count = len(edges) - 1
    last = edges[-1]
    place = np.minimum(searched(a, edges, "right") - 1, count - 1)
    return np.where((a >= edges[0]) & (a <= last), place, count)


def _in_equal_bins(a: LazyChunk, count: int, first: Any, last: Any) -> tuple[Any, np.ndarray]:
    """Return the same of bins that are equally wide, as NumPy finds it, and their edges."""
    numbers = all(isinstance(end, int | float | np.number) for end in (first, last))
    if not numbers or not 0 < count < np.iinfo(SHORT).max:
        raise UnfusibleError(GraphBreak.OPERAND, "bins that are not given by numbers")
    edges = np.histogram_bin_edges(np.empty(0, a.dtype), count, (first, last))
    if first == last:
        first, last = first - 0.5, last + 0.5
    start, stop = np.float64(first), np.float64(last)
    step = (stop - start) / count

    def edge(place: Any) -> Any:
        """Return what `edges` has at a place, as `numpy.linspace` has made it."""
        return np.where(place == count, stop, place * step + start).astype(edges.dtype)

    if not np.array_equal(edge(np.arange(count + 1)), edges):
        raise UnfusibleError(GraphBreak.NO_KERNEL, "edges of bins that are not linspace's")
    inside = (a >= first) & (a <= last)
    value = np.where(inside, a, a.dtype.type(0)).astype(edges.dtype)
    place = ((value - first) / _difference(last, first) * count).astype(SHORT)
    place = np.where(place == count, count - 1, place)
    place = np.where(value < edge(place), place - 1, place)
    place = np.where((value >= edge(place + 1)) & (place != count - 1), place + 1, place)
    return np.where(inside, place, count), edges


def _difference(last: Any, first: Any) -> Any:
    """Return a difference as NumPy's histograms compute it: that of integers has no sign."""
    dtype = np.result_type(last, first)
    if dtype.kind != "i":
        return np.subtract(last, first, dtype=dtype)
    ends = np.asarray(last, dtype), np.asarray(first, dtype)
    return np.subtract(*ends, casting="unsafe", dtype=np.dtype(f"u{dtype.itemsize}"))
