"""Scans: what NumPy accumulates along an axis, as `numpy.cumsum` does.

Elements are joined one after the other, as NumPy joins them, so that results are equal bit by bit;
what the elements are computed from is computed by the same kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import UnfusibleError
from gpusched.record.chunk import HANDLERS, METHODS, UFUNC_METHODS, LazyChunk
from gpusched.record.functions import method_of, total_dtype, without_nan
from gpusched.record.record import Recorder


def scanned(array: Any, combine: str, axis: Any, dtype: Any = None) -> LazyChunk:
    """Record each element joined with all before it along an axis.

    Parameters
    ----------
    array
        A lazy chunk.
    combine
        Name in `gpusched.emit.operations.COMBINES`.
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
    if axis is None and array.ndim != 1:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a scan of an array made flat")
    recorder = array._recorder
    value = recorder.cast(array._node, array.dtype if dtype is None else np.dtype(dtype))
    found = recorder.scan(combine, value, normalize_axis_index(axis or 0, array.ndim))
    return LazyChunk(recorder, found, fresh=found is not array._node)


def _cumsum(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return scanned(a, "add", axis, _total(a, dtype))


def _cumprod(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return scanned(a, "multiply", axis, _total(a, dtype))


def _nancumsum(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return scanned(without_nan(recorder, a, 0.0), "add", axis, _total(a, dtype))


def _nancumprod(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return scanned(without_nan(recorder, a, 1.0), "multiply", axis, _total(a, dtype))


def _total(array: Any, dtype: Any) -> Any:
    return total_dtype(array.dtype, dtype)


def _accumulate(self: LazyChunk, ufunc: np.ufunc, axis: Any = 0, dtype: Any = None) -> Any:
    """Record ``ufunc.accumulate``."""
    name = ufunc.__name__
    if not self.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a scan without an axis")
    if name in ("add", "multiply"):
        return scanned(self, name, axis, _total(self, dtype))
    if dtype is not None:
        raise UnfusibleError(GraphBreak.OPTION, "option dtype")
    if name in ("logical_or", "logical_and") and self.dtype != bool:
        raise UnfusibleError(GraphBreak.DTYPE, f"{name} of {self.dtype}")
    return scanned(self, name, axis)


HANDLERS[np.cumsum], METHODS["cumsum"] = _cumsum, method_of(_cumsum)
HANDLERS[np.cumprod], METHODS["cumprod"] = _cumprod, method_of(_cumprod)
HANDLERS[np.nancumsum], HANDLERS[np.nancumprod] = _nancumsum, _nancumprod
UFUNC_METHODS["accumulate"] = _accumulate
