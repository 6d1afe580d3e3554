"""Maxima and means of windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusched.ops.windows import Windows, over


def max_pool(x: Any, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Any:
    """Return the largest element of each window.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of shape (batch, channels, ...), with one to three further axes or more, over which windows
        slide; of any real dtype, which the result has as well. Chunked along any axis.
    size : int or tuple of int
        Of a window: one number for all axes, or one for each.
    stride : int or tuple of int, optional
        From window to window; `size` if not given.
    padding, dilation : int or tuple of int
        One number for all axes, or one for each. Padding is less than any element.

    Raises
    ------
    ValueError
        If no window fits into `x`, or a number is out of range.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched import ops
    >>> x = da.arange(16, chunks=4).reshape(1, 1, 4, 4)
    >>> ops.max_pool(x, 2).compute()
    array([[[[ 5,  7],
             [13, 15]]]])
    """
    windows = _windows(x, size, stride, padding, dilation)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return over(_largest, x, windows, x.dtype.type(least), None)


def avg_pool(x: Any, size: Any, stride: Any = None, padding: Any = 0) -> Any:
    """Return the mean of each window, with zeros for padding, which count.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        As of :func:`max_pool`, but of a float dtype.
    size, stride, padding : int or tuple of int, optional
        As of :func:`max_pool`.

    Raises
    ------
    ValueError
        If no window fits into `x`, or a number is out of range.
    TypeError
        If `x` is not of a float dtype.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched import ops
    >>> x = da.arange(16.0, chunks=4).reshape(1, 1, 4, 4)
    >>> ops.avg_pool(x, 2).compute()
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]])
    """
    if x.dtype.kind != "f":
        raise TypeError(f"x is {x.dtype}, but means are floats: use x.astype('float32')")
    return over(_mean, x, _windows(x, size, stride, padding, 1), x.dtype.type(0), None)


def _windows(x: Any, size: Any, stride: Any, padding: Any, dilation: Any) -> Windows:
    if x.ndim < 3 or x.dtype.kind not in "fiu":
        raise ValueError(
            f"x is an array of real numbers of shape (batch, channels, ...), not {x.dtype} of "
            f"shape {x.shape}"
        )
    windows = Windows.of(size, size if stride is None else stride, padding, dilation, x.ndim - 2)
    if any(2 * p > k for p, k in zip(windows.padding, windows.size, strict=True)):
        raise ValueError(
            f"a padding of {windows.padding} is more than half of a window of {windows.size}: "
            "there would be windows of padding alone"
        )
    return windows


def _largest(x: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    (_, first), *others = windows.views(x, counts)
    largest = first.copy()
    for _, elements in others:
        np.maximum(largest, elements, out=largest)
    return largest


def _mean(x: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    (_, first), *others = windows.views(x, counts)
    total = first.copy()
    for _, elements in others:
        total += elements
    total /= total.dtype.type(math.prod(windows.size))
    return total
