"""Medians and quantiles: the elements of some ranks, found without sorting the others.

NumPy partitions a copy of the elements, lane by lane. A kernel narrows down where the element of a
rank is instead, by counting, in vectors, how many elements are not more than a guess; the lanes are
put side by side before. On a GPU, where each thread has a lane, CuPy sorts few lanes instead. What
is made of the elements found is NumPy's arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.adapters.numpy import is_discrete, is_method, quantile_places
from gpusched.backends.devices import HOST, copy_into
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import HALF
from gpusched.emit.policy import LANES, LONGEST_LANE
from gpusched.plan.expression import Node, Table, UnfusibleError
from gpusched.plan.plan import Register
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.gathers import LABEL, at
from gpusched.record.handlers import records
from gpusched.record.postponed import form_of
from gpusched.record.record import Recorder
from gpusched.record.reductions import report_if_nan
from gpusched.record.segments import placed

RANK = np.dtype(np.int64)
"""Of ranks, and of places in a table of lanes."""

SHORT = 1000
"""Elements of the longest lanes for which dask has a function of its own, whose arithmetic is not
NumPy's."""


@dataclass(frozen=True)
class Lanes:
    """Elements by the results that they are selected for."""

    array: LazyChunk
    """In the dtype that they are selected in."""
    dtype: np.dtype
    """Of the elements as they were given."""
    axes: tuple[int, ...]
    """Those that a lane goes along."""
    table: Table
    """The elements, one lane after the other."""
    starts: Node
    """Where each lane begins in the table: of the shape of the results."""
    length: Any
    """Of a lane: a number, or a lazy chunk of one for each result's."""
    ordered: bool = False
    """Whether the elements of each are in order, NaN behind all others."""

    def ends(self, before: Any, after: Any) -> tuple[Any, Any]:
        """Return the elements of a rank, and of the one after it, as they were given."""
        first = self.element(before)
        return self.given(first), self.given(self.next(after, first))

    def given(self, found: LazyChunk) -> Any:
        """Return selected elements as they were given."""
        return found if found.dtype == self.dtype else found.astype(self.dtype)

    @property
    def recorder(self) -> Recorder:
        """What records them."""
        return self.array._recorder

    def element(self, rank: Any) -> LazyChunk:
        """Return the elements of a rank from 0 on, NaN where there are fewer numbers.

        The rank is a number, or lazy ones that broadcast to the shape of the results.
        """
        return self._found("select_sorted" if self.ordered else "select", rank)

    def next(self, rank: Any, before: LazyChunk) -> LazyChunk:
        """Return the same, given those of the rank before: medians take 0.7 of the time so."""
        if self.ordered:
            return self.element(rank)
        return self._found("select_next", rank, before._node)

    def numbers(self) -> LazyChunk:
        """Return how many elements of each lane are not NaN."""
        found = np.sum(~np.isnan(self.array), axis=self.axes)
        assert isinstance(found, LazyChunk)
        return found

    def _found(self, operation: str, rank: Any, *others: Node) -> LazyChunk:
        recorder = self.recorder
        ranks = recorder.cast(operand(recorder, rank), RANK)
        if ranks.shape:
            recorder.register(ranks)
        length = recorder.cast(operand(recorder, self.length), RANK)
        arguments = (self.table, self.starts, length, ranks, *others)
        node = recorder.apply(operation, arguments, self.table.dtype)
        # A kernel of its own: processors note errors of its guesses that are none of NumPy's.
        recorder.flush([node])
        return LazyChunk(recorder, node, scalar=not node.shape, fresh=bool(node.shape))


def side_by_side(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return an array's elements in one axis, those along some axes next to each other.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.selection import side_by_side
    >>> side_by_side(np.array([[1, 2], [3, 4]]), (0,))
    array([1, 3, 2, 4])
    """
    moved = _lanes_last(array, axes)
    found = unfilled(array, axes)
    if not moved.flags.c_contiguous:
        into = found.reshape(moved.shape)
        if type(into) is np.ndarray:
            copy_into(into, moved)
        else:
            into[...] = moved
    return found


@form_of(side_by_side)
def unfilled(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return an array like the one that `side_by_side` returns, without the elements it moves."""
    moved = _lanes_last(array, axes)
    if moved.flags.c_contiguous:
        return moved.reshape(-1)
    if type(array) is np.ndarray:
        # Of new memory, the system fills each page: quantiles of 300 MB took up to twice as long.
        return HOST.empty((moved.size,), moved.dtype)
    return np.empty_like(moved, order="C").reshape(-1)


def _lanes_last(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.moveaxis(array, axes, range(-len(axes), 0))


@own("portable")
def in_order(array: np.ndarray, axes: tuple[int, ...], length: int) -> np.ndarray:
    """Return the same with the elements of each lane in order.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.selection import in_order
    >>> in_order(np.array([[3, 4], [1, 2]]), (0,), 2)
    array([1, 3, 2, 4])
    """
    return np.sort(side_by_side(array, axes).reshape(-1, length), axis=-1).reshape(-1)


def lanes_of(array: Any, axis: Any, kinds: str = "f") -> Lanes:
    """Return the lanes of an array along axes, or all of it for None.

    Raises
    ------
    UnfusibleError
        Where no kernel selects from them; the message is the reason.
    """
    if not isinstance(array, LazyChunk) or not array.shape:
        raise UnfusibleError(GraphBreak.DTYPE, "elements that are not an array of floats")
    given = array.dtype
    exact = array.dtype.kind == "f" or array.dtype.itemsize <= 4
    if array.dtype.kind not in kinds or not exact:
        raise UnfusibleError(GraphBreak.DTYPE, f"a selection from {array.dtype}")
    recorder = array._recorder
    axes, length = _along(array, axis)
    kept = [array.shape[k] for k in range(array.ndim) if k not in axes]
    if not axes or 0 in array.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "a selection from nothing")
    # As with scans, a GPU is busy with a thread for each lane if there are many.
    ordered = not recorder.device.can.host_memory and math.prod(kept) < LANES * LANES
    if length > LONGEST_LANE and not ordered:
        raise UnfusibleError(GraphBreak.NO_KERNEL, f"a selection among {length:,} elements")
    if given.kind != "f" or given == HALF:
        array = array.astype(np.float32 if given == HALF else np.float64)
    if ordered:
        leaf = recorder.derived(array._node, in_order, axes, length)
    else:
        leaf = recorder.derived(array._node, side_by_side, axes)
    starts = np.arange(math.prod(kept), dtype=RANK).reshape(kept) * length
    table = recorder.table(leaf)
    return Lanes(array, given, axes, table, recorder.constant(starts), length, ordered)


def _along(array: LazyChunk, axis: Any) -> tuple[tuple[int, ...], int]:
    """Return the axes that lanes go along, and how long lanes are."""
    every = tuple(range(array.ndim))
    axes = normalize_axis_tuple(every if axis is None else axis, array.ndim)
    return axes, math.prod(array.shape[k] for k in axes)


def lanes_by_label(array: LazyChunk, labels: Any, count: int) -> Lanes:
    """Return lanes of what has the same label along the last axis; results have one for each label.

    Parameters
    ----------
    array, labels, count
        As in `gpusched.record.segments.reduced`, which has no axis here but the last one.

    Raises
    ------
    UnfusibleError
        Where no kernel selects from them; the message is the reason.
    """
    recorder, marks = array._recorder, operand(array._recorder, labels)
    order = recorder.derived(marks, by_label, count)
    whole = lanes_of(at(array, order, array.ndim - 1), -1)
    if whole.ordered:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "few lanes of several labels each on a GPU")
    ends = LazyChunk(recorder, recorder.derived(marks, ends_of, count))
    starts = LazyChunk(recorder, whole.starts)[..., np.newaxis] + ends[:-1]
    return replace(whole, starts=starts._node, length=ends[1:] - ends[:-1])


@own("portable")
def by_label(labels: np.ndarray, count: int) -> np.ndarray:
    """Return positions in the order of their labels, those that are not in ``range(count)`` last.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.selection import by_label
    >>> by_label(np.array([1, -1, 0, 1]), 2)
    array([2, 0, 3, 1])
    """
    marks = placed(labels, count)
    return np.argsort(np.where(marks < 0, count, marks), kind="stable").astype(LABEL)


@own("portable")
def ends_of(labels: np.ndarray, count: int) -> np.ndarray:
    """Return how many labels are less than each of ``range(count + 1)``, of those that are in it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.selection import ends_of
    >>> ends_of(np.array([1, -1, 0, 1]), 2)
    array([0, 1, 3])
    """
    marks = placed(labels, count)
    found = np.zeros_like(marks, RANK, shape=count + 1)
    found[1:] = np.cumsum(np.bincount(marks[marks >= 0], minlength=count))
    return found


@records(np.median)
def _median(recorder: Recorder, a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    lanes = lanes_of(a, axis, "fiu")
    found = _middle(lanes, lanes.length)
    return _with_nan(a, lanes, _mean_of(lanes, found), keepdims)


@records(np.nanmedian)
def _nanmedian(recorder: Recorder, a: Any, axis: Any = None, *,
               keepdims: Any = False) -> Any:  # fmt: skip
    if _are_integers(a):
        return _median(recorder, a, axis, keepdims=keepdims)
    lanes = lanes_of(a, axis)
    found = _mean_of(lanes, _middle(lanes, lanes.numbers()))
    return _kept(report_if_nan(found), lanes, keepdims)


def _are_integers(a: Any) -> bool:
    return isinstance(a, LazyChunk) and a.dtype.kind in "iu"


def _mean_of(lanes: Lanes, found: Any) -> Any:
    """Return means of selected elements in NumPy's dtype: that of floats, which it rounds once."""
    return lanes.given(found) if lanes.dtype.kind == "f" else found


def _middle(lanes: Lanes, numbers: Any) -> Any:
    """Return the middle of some numbers, or the mean of the two in the middle."""
    first = lanes.element((numbers - 1) // 2)
    if isinstance(numbers, int) and numbers % 2:
        return first + 0.0  # NumPy's mean of a negative zero is positive.
    both = (first + lanes.next(numbers // 2, first) + 0.0) / 2
    return both if isinstance(numbers, int) else np.where(numbers % 2 == 0, both, first + 0.0)


@records(np.quantile)
def _quantile(recorder: Recorder, a: Any, q: Any, axis: Any = None, *, method: Any = "linear",
              keepdims: Any = False) -> Any:  # fmt: skip
    q = _given(q, method)
    if type(q) is int and _are_integers(a):
        raise UnfusibleError(GraphBreak.OPERAND, "an integer quantile, which is an element")
    lanes = lanes_of(a, axis, "fiu")
    places: Any
    if isinstance(q, LazyChunk):
        register = Register(recorder.register(q._node))
        leaves = recorder.call(places_of, (register, lanes.length, method), {})
        places = [LazyChunk(recorder, leaf) for leaf in leaves]
    else:
        places = quantile_places(np.asarray(q), lanes.length, method)
    before, after, share = (_before(lanes, each) for each in places)
    if is_discrete(method):
        return _with_nan(a, lanes, lanes.given(lanes.element(before)), keepdims)
    # A number of Python's leaves float32 what it is.
    share = float(share) if type(q) in (int, float) else share
    return _with_nan(a, lanes, between(*lanes.ends(before, after), share), keepdims)


@records(np.nanquantile)
def _nanquantile(recorder: Recorder, a: Any, q: Any, axis: Any = None, *, method: Any = "linear",
                 keepdims: Any = False) -> Any:  # fmt: skip
    q = _given(q, method)
    if method != "linear":
        raise UnfusibleError(GraphBreak.OPTION, f"option method {method!r}")
    if _are_integers(a):
        return _quantile(recorder, a, q, axis, keepdims=keepdims)
    checked_q = _checked(recorder, q)
    lanes = lanes_of(a, axis)
    last = lanes.numbers() - 1
    places = last * _before(lanes, checked_q)
    before = np.minimum(np.floor(places).astype(RANK), last)
    first, second = lanes.ends(before, np.minimum(before + 1, last))
    number = type(q) in (int, float)
    found = between(first, second, places - before, a.dtype if number else None)
    return _kept(found, lanes, keepdims)


def short_nanquantile(a: LazyChunk, q: Any, axis: Any, method: Any, keepdims: Any) -> Any:
    """Record dask's ``_custom_nanquantile``, which sorts short lanes, in arithmetic of its own."""
    last_axis = len(axis) == 1 and axis[0] == a.ndim - 1 > 0
    if method != "linear" or not last_axis or a.shape[-1] > SHORT or q.ndim > 1:
        return np.nanquantile(a, q, axis=axis, method=method, keepdims=keepdims)
    recorder = a._recorder
    checked_q = _checked(recorder, q)
    try:
        lanes = lanes_of(a, axis[0])
    except UnfusibleError as error:
        recorder.stop(error.reason)
    places = (lanes.numbers() - 1) * _before(lanes, checked_q)
    lower, higher = np.floor(places).astype(RANK), np.ceil(places).astype(RANK)
    first = lanes.element(lower)
    second = lanes.next(higher, first)
    above = places - lower
    above = np.where(above == 0.0, 1.0, above)
    return _kept(second * above + first * (higher - places), lanes, keepdims)


def _given(q: Any, method: Any) -> Any:
    """Return quantiles as they are recorded: a number of Python's, or an array."""
    if not is_method(method):
        raise UnfusibleError(GraphBreak.OPTION, f"option method {method!r}")
    if type(q) in (int, float):
        return q
    found = q if isinstance(q, LazyChunk) else np.asarray(q)
    if found.ndim > 1 or found.dtype.kind != "f":
        raise UnfusibleError(GraphBreak.OPERAND, "quantiles that are not one axis of floats")
    return found


def _checked(recorder: Recorder, q: Any) -> Any:
    """Return quantiles that NumPy takes."""
    if isinstance(q, LazyChunk):
        register = Register(recorder.register(q._node))
        return LazyChunk(recorder, recorder.call(checked, (register,), {}))
    return checked(np.asarray(q))


@own("portable")
def places_of(quantiles: Any, count: int, method: str) -> tuple[np.ndarray, ...]:
    """Return what `quantile_places` does of numbers that may be in device memory: they are few."""
    if isinstance(quantiles, np.ndarray):
        return quantile_places(quantiles, count, method)
    found = quantile_places(quantiles.get(), count, method)
    return tuple([np.asarray(each, like=quantiles) for each in found])


@own("portable")
def checked(quantiles: np.ndarray) -> np.ndarray:
    """Return quantiles; `ValueError` as NumPy raises it, where they are not from 0 to 1."""
    places_of(quantiles, 1, "linear")
    return quantiles + 0


def _before(lanes: Lanes, array: Any) -> Any:
    """Return an array whose axes are before those of the results."""
    return array[(..., *[np.newaxis] * lanes.starts.ndim)] if array.ndim else array


def between(first: Any, second: Any, share: Any, dtype: np.dtype | None = None) -> Any:
    """Return NumPy's interpolation between numbers.

    Parameters
    ----------
    first, second
        The numbers.
    share
        How far the result is from the first, from 0 to 1.
    dtype
        What shares are rounded to where they are numbers of Python's in NumPy, as is what they lack
        to 1; None where they are not.
    """
    apart, rest = second - first, 1 - share
    near, far = (share, rest) if dtype is None else (share.astype(dtype), rest.astype(dtype))
    return np.where(share >= 0.5, second - apart * far, first + apart * near)


def _with_nan(a: LazyChunk, lanes: Lanes, found: Any, keepdims: Any) -> Any:
    """Return results, NaN where one of the elements is, with the axes that NumPy's have."""
    if a.dtype.kind == "f":
        found = np.where(lanes.numbers() < lanes.length, np.nan, found)
    return _kept(found, lanes, keepdims)


def _kept(found: Any, lanes: Lanes, keepdims: Any) -> Any:
    """Return results with axes of length 1 where the lanes were, if they are kept."""
    if not keepdims:
        return LazyChunk(lanes.recorder, found._node, scalar=not found.shape, fresh=True)
    more = found.ndim - lanes.starts.ndim
    return np.expand_dims(found, tuple(more + axis for axis in lanes.axes))


@records(np.percentile)
def _percentile(recorder: Recorder, a: Any, q: Any, axis: Any = None, *, method: Any = "linear",
                keepdims: Any = False) -> Any:  # fmt: skip
    return _quantile(recorder, a, _share(q), axis, method=method, keepdims=keepdims)


@records(np.nanpercentile)
def _nanpercentile(recorder: Recorder, a: Any, q: Any, axis: Any = None, *, method: Any = "linear",
                   keepdims: Any = False) -> Any:  # fmt: skip
    return _nanquantile(recorder, a, _share(q), axis, method=method, keepdims=keepdims)


def _share(q: Any) -> Any:
    """Return percentiles as quantiles."""
    return q / 100 if type(q) in (int, float) else np.true_divide(q, 100)
