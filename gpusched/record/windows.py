"""Windows that slide along axes: views, which kernels reduce without an array of all windows.

``sliding_window_view(x, 30, 0).mean(axis=-1)`` is one kernel. It reads each element once from
memory, and as often as it is in a window from the cache.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import UnfusibleError
from gpusched.record.chunk import LazyChunk, records
from gpusched.record.record import Recorder


def windows(array: Any, window_shape: Any, axis: Any) -> Any:
    """Return what `numpy.lib.stride_tricks.sliding_window_view` does, of NumPy's or CuPy's array.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.windows import windows
    >>> windows(np.arange(4), 2, None)
    array([[0, 1],
           [1, 2],
           [2, 3]])
    """
    if type(array) is np.ndarray:
        return sliding_window_view(array, window_shape, axis)
    # Of an array without elements in memory, for the shape and NumPy's errors.
    shown = sliding_window_view(np.broadcast_to(np.int8(), array.shape), window_shape, axis)
    axes = range(array.ndim) if axis is None else np.atleast_1d(axis)
    strides = (*array.strides, *(array.strides[int(each)] for each in axes))
    library: Any = sys.modules[type(array).__module__.partition(".")[0]]
    return library.lib.stride_tricks.as_strided(array, shown.shape, strides)


@records(sliding_window_view)
def _windows(recorder: Recorder, x: Any, window_shape: Any, axis: Any = None, *,
             subok: bool = False, writeable: bool = False) -> LazyChunk:  # fmt: skip
    """Record windows of a chunk, which is computed once before."""
    if subok or writeable:
        raise UnfusibleError(GraphBreak.OPTION, "windows that may be written to")
    if not isinstance(x, LazyChunk) or not x.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "windows of an array without axes")
    x._fresh = False
    register = recorder.register(x._node)
    found = recorder.leaf_view(register, lambda array: windows(array, window_shape, axis))
    return LazyChunk(recorder, found)
