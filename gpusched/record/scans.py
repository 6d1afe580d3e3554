"""Scans: what NumPy accumulates along an axis, as `numpy.cumsum` does, and what users' scans join.

Elements are joined one after the other, as NumPy joins them, so that results are equal bit by bit;
what the elements are computed from is computed by the same kernel. On a GPU with few lanes, blocks
of each lane are scanned first, and what they come to after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.policy import SCANNED_BLOCK
from gpusched.plan.expression import UnfusibleError
from gpusched.record.accumulation import CUMULATED, few_lanes, scan
from gpusched.record.chunk import LazyChunk, compute
from gpusched.record.compound import assembled
from gpusched.record.handlers import UFUNC_METHODS, axis_of, records
from gpusched.record.record import Recorder
from gpusched.record.reductions import joined_dtype, total_dtype, without_nan


def scanned(array: Any, combine: str, axis: Any, dtype: Any = None) -> LazyChunk:
    """Record each element joined with all before it along an axis.

    Parameters
    ----------
    array
        A lazy chunk.
    combine
        Name in `gpusched.emit.operations.COMBINES`, or of a user's function.
    axis
        Which axis; None for that of an array which has one.
    dtype
        What elements are converted to before; the array's if None.

    Raises
    ------
    UnfusibleError
        Where no kernel can do it; the message is the reason.
    """
    if not isinstance(array, LazyChunk):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(array).__name__}")
    if not array.shape or (axis is None and array.ndim != 1):
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a scan of an array made flat")
    recorder = array._recorder
    value = recorder.cast(array._node, array.dtype if dtype is None else np.dtype(dtype))
    place = axis_of(0 if axis is None else axis, array.ndim)
    if combine not in CUMULATED and 0 not in array.shape and few_lanes(recorder, value, place):
        found = _in_blocks(LazyChunk(recorder, value), combine, place)._node
    else:
        found = scan(recorder, combine, value, place)
    return LazyChunk(recorder, found, fresh=found is not array._node)


def _in_blocks(array: LazyChunk, combine: str, axis: int) -> LazyChunk:
    """Record a scan of few lanes: of blocks first, then of what those come to.

    Each block is then joined with what is before it (G. E. Blelloch, "Prefix sums and their
    applications", 1990). What joins elements need not commute.
    """
    recorder, length = array._recorder, array.shape[axis]
    whole = length // SCANNED_BLOCK * SCANNED_BLOCK
    if length == whole or not whole:
        return _of_whole_blocks(array, combine, axis)
    recorder.register(array._node)  # computed once for both
    before = (slice(None),) * axis
    first = _of_whole_blocks(array[*before, :whole], combine, axis)
    rest = LazyChunk(recorder, scan(recorder, combine, array[*before, whole:]._node, axis))
    rest = _joined(first[*before, -1:], rest, combine)
    return compute(recorder, np.concatenate, ([first, rest],), {"axis": axis}, copies=True)


def _of_whole_blocks(array: LazyChunk, combine: str, axis: int) -> LazyChunk:
    recorder, shape = array._recorder, array.shape
    count = shape[axis] // SCANNED_BLOCK
    if count < 2:
        return LazyChunk(recorder, scan(recorder, combine, array._node, axis))
    blocks: Any = np.reshape(array, (*shape[:axis], count, SCANNED_BLOCK, *shape[axis + 1 :]))
    inside = LazyChunk(recorder, scan(recorder, combine, blocks._node, axis + 1))
    before = (slice(None),) * axis
    ends = _in_blocks(inside[*before, :, -1], combine, axis)
    later = _joined(ends[*before, :-1, np.newaxis], inside[*before, 1:], combine)
    parts = [((*before, slice(1)), inside[*before, :1]), ((*before, slice(1, None)), later)]
    whole = assembled(recorder, [(index, part._node) for index, part in parts], inside._node)
    found: Any = np.reshape(LazyChunk(recorder, whole), shape)
    return found


def _joined(before: LazyChunk, after: LazyChunk, combine: str) -> LazyChunk:
    recorder = after._recorder
    return LazyChunk(recorder, recorder.apply(combine, (before._node, after._node), after.dtype))


def _cumulating(combine: str, instead: float | None = None) -> Callable[..., Any]:
    """Return a handler that joins values so, with a number instead of NaN if one is given."""

    def record(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None) -> Any:
        values = a if instead is None else without_nan(recorder, a, instead)
        return scanned(values, combine, axis, total_dtype(a.dtype, dtype))

    return record


records(np.cumsum, method="cumsum")(_cumulating("add"))
records(np.cumprod, method="cumprod")(_cumulating("multiply"))
records(np.nancumsum)(_cumulating("add", 0.0))
records(np.nancumprod)(_cumulating("multiply", 1.0))


def _accumulate(self: LazyChunk, ufunc: np.ufunc, axis: Any = 0, dtype: Any = None) -> Any:
    """Record ``ufunc.accumulate``."""
    name = ufunc.__name__
    if not self.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a scan without an axis")
    if name in ("logical_or", "logical_and") and self.dtype != bool:
        raise UnfusibleError(GraphBreak.DTYPE, f"{name} of {self.dtype}")
    return scanned(self, name, axis, joined_dtype(name, self.dtype, dtype))


UFUNC_METHODS["accumulate"] = _accumulate
