"""Segmented reductions: what has the same label along an axis is joined, as in a group-by.

The kernels read values once and keep the results of all labels in the cache. NumPy's functions that
are such reductions (`numpy.bincount`, ``numpy.add.reduceat``, ``numpy.add.at``) are recorded in
terms of `reduced`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import part
from gpusched.emit.generate import identity_value
from gpusched.plan.expression import Leaf, Node, UnfusibleError, resolve_dtypes
from gpusched.record.accumulation import segments
from gpusched.record.assignments import changed
from gpusched.record.chunk import LazyChunk, node_of, operand
from gpusched.record.gathers import LABEL, at, located
from gpusched.record.handlers import UFUNC_METHODS, axis_of, records
from gpusched.record.moments import corrected, held_in
from gpusched.record.record import Recorder
from gpusched.record.reductions import joined_dtype
from gpusched.record.ufuncs import elementwise


def placed(labels: np.ndarray, count: int) -> np.ndarray:
    """Return labels as kernels take them: -1 for those that are not among ``range(count)``.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.segments import placed
    >>> placed(np.array([0, 2, -1, 3], "i1"), 3)
    array([ 0,  2, -1, -1])
    """
    inside = (labels >= 0) & (labels < count)
    return np.where(inside, labels.astype(LABEL), -1)


def reduced(array: LazyChunk, labels: Any, count: int, combine: str, axis: int = -1,
            dtype: Any = None, initial: Any = None) -> LazyChunk:  # fmt: skip
    """Record the reductions of an array along an axis, one for each label.

    Parameters
    ----------
    array
        What is reduced.
    labels
        Integers, one for each element along the axis: a lazy chunk, or an array that does not
        depend on the chunk's values. What is not in ``range(count)`` is left out.
    count
        How many labels there are.
    combine
        Name in `gpusched.emit.operations.COMBINES`.
    axis
        Which axis; the result has a value for each label along it.
    dtype
        What values are converted to before; the array's if None.
    initial
        What a result starts from, and is where no element has its label; 0 in a sum if None, and
        accordingly what changes nothing in another reduction.

    Raises
    ------
    UnfusibleError
        Where no kernel can do it; the message is the reason.
    """
    if not array.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a reduction without an axis")
    axis = axis_of(axis, array.ndim)
    marks = _labels(array, labels, count, axis)
    return _by(array, marks, count, combine, axis, dtype, initial)


def _by(array: LazyChunk, marks: Leaf, count: int, combine: str, axis: int, dtype: Any = None,
        initial: Any = None) -> LazyChunk:  # fmt: skip
    """Do what `reduced` does, by labels as kernels take them."""
    recorder, node = array._recorder, array._node
    if combine.startswith("logical"):
        node = recorder.cast(node, np.dtype(bool))  # which 0.5 is, and no integer
    value = recorder.cast(node, array.dtype if dtype is None else np.dtype(dtype))
    if initial is None:
        own = part(value.dtype) if value.dtype.kind == "c" else value.dtype
        initial = identity_value(combine, own)
    found = segments(recorder, combine, value, marks, count, axis, initial)
    return LazyChunk(recorder, found, fresh=True)


class Moments(NamedTuple):
    """What is known of the values that have the same label."""

    number: LazyChunk
    """How many there are that are not NaN, of int64."""
    total: LazyChunk
    """Their sum, of float64."""
    squares: LazyChunk
    """The squares of their deviations from the mean, added up, of float64."""


def moments(array: LazyChunk, labels: Any, count: int, axis: int = -1, skip: bool = False,
            dtype: Any = np.float64) -> Moments:  # fmt: skip
    """Record the moments of an array along an axis, for each label.

    Parameters
    ----------
    array, labels, count, axis
        As in `reduced`.
    skip
        Whether NaN is left out, among deviations too, as that of infinity from an infinite mean; a
        label that has one has NaN as its squares otherwise.
    dtype
        What sums are to be kept in: those that it cannot hold are infinite.

    Notes
    -----
    Values are read twice: for their means, and for deviations from the rounded means. What these
    add up to is how far the mean was from the rounded one, which corrects the squares.
    """
    recorder = array._recorder
    if not array.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a reduction without an axis")
    axis = axis_of(axis, array.ndim)
    marks = _labels(array, labels, count, axis)
    missing = np.isnan(array)
    wide = array.astype(np.float64)

    def add(value: Any, dtype: type) -> LazyChunk:
        return _by(value, marks, count, "add", axis, dtype)

    values = np.where(missing, 0.0, wide) if skip else wide
    number, total = add(~missing, np.int64), add(values, np.float64)
    recorder.flush([number._node, total._node])  # in one kernel
    total = held_in(total, dtype)
    # Nothing is computed from here to the sums: only they leave out what has a label below 0.
    # But what one label chooses is computed at once (`gpusched.record.views.gather`).
    places = recorder.derived(marks, _not_negative) if marks.shape == (1,) else marks
    away = wide - at(total / np.maximum(number, 1), places, axis)
    away = np.where(np.isnan(away), 0.0, away) if skip else away
    apart, squares = add(away, np.float64), add(np.square(away), np.float64)
    recorder.flush([apart._node, squares._node])
    return Moments(number, total, held_in(corrected(squares, apart, number), dtype))


def _not_negative(labels: np.ndarray) -> np.ndarray:
    return np.maximum(labels, 0)


def _labels(array: LazyChunk, labels: Any, count: int, axis: int) -> Leaf:
    """Return the labels as kernels take them; once for all reductions by the same ones."""
    recorder = array._recorder
    node = operand(recorder, labels)
    if not isinstance(node, Node) or node.dtype.kind not in "iu" or node.ndim != 1:
        raise UnfusibleError(GraphBreak.OPERAND, "labels that are not a row of integers")
    if node.shape != array.shape[axis : axis + 1]:
        raise UnfusibleError(GraphBreak.OPERAND, "labels of another length than the axis")
    return recorder.derived(node, placed, count)


@records(np.bincount)
def _bincount(recorder: Recorder, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if type(x) is not np.ndarray or x.ndim != 1 or x.dtype.kind not in "iu":
        raise UnfusibleError(
            GraphBreak.LENGTH, "bins that depend on a chunk's values: its result's length does too"
        )
    if not isinstance(weights, LazyChunk) or weights.shape != x.shape or not x.size or x.min() < 0:
        raise UnfusibleError(GraphBreak.OPERAND, "weights that are not one number for each bin")
    if not np.can_cast(weights.dtype, np.float64):
        raise UnfusibleError(GraphBreak.DTYPE, f"weights of dtype {weights.dtype}")
    if type(minlength) is not int or minlength < 0 or not np.can_cast(x.dtype, np.intp):
        raise UnfusibleError(GraphBreak.OPTION, "option minlength, or the dtype of the bins")
    count = max(int(x.max()) + 1, minlength)
    return reduced(weights, x, count, "add", 0, np.float64)


def _keeping_zeros(combine: str, dtype: np.dtype) -> float | None:
    """Return what sums start from that are to keep the signs of zeros; None for other joins."""
    return -0.0 if combine == "add" and dtype.kind in "fc" else None


def _reduceat(self: LazyChunk, ufunc: np.ufunc, indices: Any, axis: int = 0,
              dtype: Any = None) -> Any:  # fmt: skip
    """Record ``ufunc.reduceat`` for segments that follow each other."""
    name = ufunc.__name__
    if isinstance(indices, LazyChunk) or not self.shape:
        raise UnfusibleError(GraphBreak.VALUES, "segments that depend on a chunk's values")
    starts, length = np.asarray(indices), self.shape[axis_of(axis, self.ndim)]
    if starts.ndim != 1 or starts.dtype.kind not in "iu" or not starts.size:
        raise UnfusibleError(GraphBreak.OPERAND, "segments that are not a row of integers")
    if starts[0] < 0 or starts[-1] >= length or (np.diff(starts.astype(np.int64)) <= 0).any():
        raise UnfusibleError(GraphBreak.NO_KERNEL, "segments that do not follow each other")
    wanted = joined_dtype(name, self.dtype, dtype)
    labels = np.searchsorted(starts, np.arange(length), side="right") - 1
    # NumPy starts from each segment's first element, which may be a negative zero.
    initial = _keeping_zeros(name, wanted)
    return reduced(self, labels, len(starts), name, axis, wanted, initial)


UFUNC_METHODS["reduceat"] = _reduceat


def _at(self: LazyChunk, ufunc: np.ufunc, indices: Any, values: Any) -> None:
    """Record ``ufunc.at``, which joins values to the elements at some positions.

    What has the same position is joined first, and that with the array.
    """
    recorder, node = self._recorder, self._node
    if not self.whole._fresh or not node.shape or values is self or indices is self:
        raise UnfusibleError(GraphBreak.CHANGES, "changes a chunk in place")
    axis, marks = _positions(node.ndim, indices)
    places, length = operand(recorder, marks), node.shape[axis]
    if not isinstance(places, Node) or places.dtype.kind not in "iu" or not places.shape:
        raise UnfusibleError(GraphBreak.OPERAND, "positions that are not integers")
    value = values if isinstance(values, LazyChunk) else np.asarray(values)
    shape = (*node.shape[:axis], *places.shape, *node.shape[axis + 1 :])
    if 0 in shape:
        raise UnfusibleError(GraphBreak.EMPTY, "reduction of an empty array")
    if ufunc is np.multiply and node.dtype.kind == "c":
        # An infinite number times 1 is not itself.
        raise UnfusibleError(GraphBreak.DTYPE, "products of complex numbers at some positions")
    # One loop for all: each step would be rounded to the array's dtype otherwise.
    one, other, found = resolve_dtypes(ufunc, (node, operand(recorder, value)))
    if not one == found == node.dtype:
        raise UnfusibleError(GraphBreak.DTYPE, f"{value.dtype} joined to {node.dtype}")
    whole: Any = LazyChunk(recorder, recorder.cast(operand(recorder, value), other))
    whole = np.broadcast_to(whole if whole.shape else whole[None], shape)
    if len(places.shape) != 1:
        whole = np.reshape(whole, (*shape[:axis], -1, *node.shape[axis + 1 :]))
        flat: Any = np.reshape(LazyChunk(recorder, places), -1)
        places = node_of(flat)
    labels = LazyChunk(recorder, recorder.derived(places, located, length, axis))
    # What nothing is added to keeps the sign of its zeros.
    initial = _keeping_zeros(ufunc.__name__, node.dtype)
    joined = reduced(whole, labels, length, ufunc.__name__, axis, initial=initial)
    result = elementwise(recorder, ufunc, (LazyChunk(recorder, node), joined))
    self._node = recorder.cast(node_of(result), node.dtype)
    changed(recorder, self)


def _positions(ndim: int, indices: Any) -> tuple[int, Any]:
    """Return along which axis an index chooses positions, and which; it takes all of the others."""
    if not isinstance(indices, tuple):
        return 0, indices
    rows = [k for k, item in enumerate(indices) if isinstance(item, LazyChunk | np.ndarray)]
    others = [item for k, item in enumerate(indices) if k not in rows]
    if len(rows) != 1 or any(item is not Ellipsis and item != slice(None) for item in others):
        raise UnfusibleError(GraphBreak.INDEX, "positions along several axes")
    (place,) = rows
    before = indices[:place].count(Ellipsis)
    axis = place + before * (ndim - len(indices))
    if others.count(Ellipsis) > 1 or not 0 <= axis < ndim or len(indices) > ndim + before:
        raise UnfusibleError(GraphBreak.INDEX, "too many indices")
    return axis, indices[place]


UFUNC_METHODS["at"] = _at
