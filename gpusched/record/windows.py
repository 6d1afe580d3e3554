"""Sliding windows of a chunk, which kernels read in place.

``sliding_window_view(x, 30, 0).mean(axis=-1)`` is one kernel, without an array of all windows. It
reads each element once from memory, and as often as it is in a window from the cache.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import Leaf, Node, UnfusibleError
from gpusched.record.accumulation import scan
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
    found = leaf_view(recorder, register, lambda array: windows(array, window_shape, axis))
    return LazyChunk(recorder, found)


MANY_TIMES = 8
"""In how many windows an element is, at least, where running totals are kept: sums of 8 million
windows of bool took 36 ms instead of 41 there, and 34 instead of 76 of 30 elements each; of int32
the same at 8, and 37 instead of 49 at 30 (processor time, with the rest of the task)."""

NARROW = tuple(np.dtype(f"{kind}{size}") for size in (1, 2, 4) for kind in "ui")
"""Dtypes that running totals are kept in if sums of windows fit."""


def window_totals(recorder: Recorder, node: Node, dtype: np.dtype, axes: tuple[int, ...],
                  keepdims: bool) -> Node | None:  # fmt: skip
    """Record sums of integers in windows as differences of running totals; None if not that.

    Parameters
    ----------
    node
        What is added up.
    dtype
        In which it is.
    axes
        Over which, ascending.
    keepdims
        Whether these stay, with length 1.

    Notes
    -----
    An element costs one addition for its running total, and a window two, however long it is. It is
    exact: NumPy's integers are numbers modulo a power of two, in which a total less one before it
    is the sum of what is between. That holds of fewer bits, too, if they can hold the sum.

    On a GPU, whose threads have windows in their caches, each window is added up for itself.
    """
    host = recorder.device.can.host_memory
    if not host or len(axes) != 1 or node.dtype.kind not in "biu" or dtype.kind not in "iu":
        return None
    if not isinstance(node, Leaf) or 0 in node.shape:
        return None
    (over,), strides = axes, recorder.contents[node.register].strides
    slides = _slides(node.shape, strides, over)
    if slides is None:
        return None
    axis, jump, count = slides
    length = node.shape[over]

    def elements(array: np.ndarray) -> np.ndarray:
        """Return what windows are of, from the first one's start to the last one's end."""
        shape, moves = list(array.shape), list(array.strides)
        shape[axis], moves[axis] = count, moves[over]
        del shape[over], moves[over]
        return as_strided(array, shape, moves, writeable=False)

    narrow, place = _narrowest(node.dtype, dtype, length), axis - (over < axis)
    source = leaf_view(recorder, node.register, elements)
    value = recorder.cast(source, narrow)
    totals = recorder.register(scan(recorder, "add", value, place))

    def of(register: int, first: int) -> Node:
        """Return the elements from which, or to which, windows go."""
        index: list[Any] = [slice(None)] * (node.ndim - 1)
        index[place] = slice(first, first + count - length + 1, jump)
        index[over:over] = [np.newaxis] * keepdims
        return recorder.cast(leaf_view(recorder, register, lambda a: a[tuple(index)]), narrow)

    starts = of(totals, 0), of(recorder.register(source), 0)
    between = recorder.apply("subtract", (of(totals, length - 1), starts[0]), narrow)
    return recorder.cast(recorder.apply("add", (between, starts[1]), narrow), dtype)


def _slides(
    shape: tuple[int, ...], strides: tuple[int, ...], over: int
) -> tuple[int, int, int] | None:
    """Return along which axis windows slide, by how many elements, and over how many in all.

    None if they do not, or if no element is in many of them.
    """
    length, step = shape[over], strides[over]
    # From one window to the next are whole elements, in the direction that windows have.
    along = [k for k, n in enumerate(shape) if k != over and n > 1 and step
             and strides[k] % step == 0 and strides[k] // step > 0]  # fmt: skip
    found = {k: (shape[k] - 1) * (strides[k] // step) + length for k in along}
    if not found:
        return None
    axis, count = min(found.items(), key=lambda item: item[1])
    many = shape[axis] * length >= MANY_TIMES * count
    return (axis, strides[axis] // step, count) if many else None


def _narrowest(given: np.dtype, dtype: np.dtype, length: int) -> np.dtype:
    """Return the narrowest dtype that holds sums of so many numbers, of those up to `dtype`."""
    info = None if given.kind == "b" else np.iinfo(given)
    least, most = (0, length) if info is None else (info.min * length, info.max * length)
    narrower = (d for d in NARROW if d.itemsize < dtype.itemsize)
    fits = (d for d in narrower if np.iinfo(d).min <= least and most <= np.iinfo(d).max)
    return next(fits, dtype)
