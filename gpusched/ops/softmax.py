"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.ops.chunks import along, floating


def softmax(x: Any, axis: int = -1) -> Any:
    """Return ``exp(x) / sum(exp(x))`` along an axis, which overflows nowhere.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of any shape and real dtype; the result has its shape and chunks, and is floating: float32
        of integers of up to 16 bits, float64 of larger ones. One task per chunk if
        the axis is in one chunk, else dask's tree reductions.
    axis : int
        Along which the result's sum is 1.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    TypeError
        If `x` is of no real dtype.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched import ops
    >>> ops.softmax(da.array([[0.0, 0.0], [1e4, 0.0]])).compute()
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    return along(_softmax, floating(x), axis)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """Return the logarithm of :func:`softmax`, also where that rounds to 0.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        As of :func:`softmax`.
    axis : int
        As of :func:`softmax`.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    TypeError
        If `x` is of no real dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched import ops
    >>> ops.log_softmax(np.array([1e4, 0.0]))
    array([     0., -10000.])
    """
    return along(_log_softmax, floating(x), axis)


def _softmax(x: Any, axis: Any) -> Any:
    raised = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return raised / np.sum(raised, axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: Any) -> Any:
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
