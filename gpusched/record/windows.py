"""Sliding windows of a chunk, which kernels read in place.

``sliding_window_view(x, 30, 0).mean(axis=-1)`` is one kernel, without an array of all windows. It
reads each element once from memory, and as often as it is in a window from the cache.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import Leaf, Node, UnfusibleError
from gpusched.record.chunk import LazyChunk
from gpusched.record.handlers import records
from gpusched.record.record import Recorder
from gpusched.record.views import leaf_view


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


@records(sliding_window_view, traits=("recorded",))  # Windows may be written to.
def _windows(recorder: Recorder, x: Any, window_shape: Any, axis: Any = None, *,
             subok: bool = False, writeable: bool = False) -> LazyChunk:  # fmt: skip
    """Record windows of a chunk, which is computed once before."""
    if subok or writeable:
        raise UnfusibleError(GraphBreak.OPTION, "windows that may be written to")
    if not isinstance(x, LazyChunk) or not x.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "windows of an array without axes")
    x.lend()
    register = recorder.register(x._node)
    found = leaf_view(recorder, register, lambda array: windows(array, window_shape, axis))
    return LazyChunk(recorder, found)


NARROW = tuple(np.dtype(f"{kind}{size}") for size in (1, 2, 4) for kind in "ui")
"""Dtypes that sums of windows are kept in if they fit."""


def shows_again(recorder: Recorder, node: Node) -> bool:
    """Return whether a node is an array that shows elements several times, as windows do."""
    if not isinstance(node, Leaf):
        return False
    array = recorder.contents[node.register]
    steps = [s for n, s in zip(array.shape, array.strides, strict=True) if s and n > 1]
    return len(set(steps)) < len(steps)


def window_total(recorder: Recorder, node: Node, dtype: np.dtype, count: int) -> np.dtype:
    """Return in which dtype to add up, for sums of another: fewer bytes for those of windows.

    There are about as many of them as elements, and who counts them is often all who reads them.
    Sums in fewer bits are exact if these hold them: integers are numbers modulo a power of two.
    Rolling means of 100 MB read and write 756 MB so, not 926, in 0.92 of the processor time.

    Parameters
    ----------
    node
        What is added up.
    dtype
        Of the sums.
    count
        How many elements each is of.
    """
    if node.dtype.kind not in "biu" or dtype.kind not in "iu" or not shows_again(recorder, node):
        return dtype
    info = None if node.dtype.kind == "b" else np.iinfo(node.dtype)
    least, most = (0, count) if info is None else (info.min * count, info.max * count)
    narrower = (d for d in NARROW if d.itemsize < dtype.itemsize)
    fits = (d for d in narrower if np.iinfo(d).min <= least and most <= np.iinfo(d).max)
    return next(fits, dtype)
