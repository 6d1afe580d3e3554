"""Convolutions, as neural networks have them: cross-correlations of all channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from gpusched.ops.activations import activation as named
from gpusched.ops.chunks import as_weight, beside, check_shape, like, parameter, whole
from gpusched.ops.windows import Windows, over

Numbers = int | tuple[int, ...]
Activation = str | Callable[[Any], Any] | None


def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    activation: Activation = None,
) -> Any:
    """Convolve over the last axis: as :func:`conv2d` does over two.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of shape (batch, channels, length).
    weight : array_like
        Of shape (outputs, channels / groups, length).
    bias : array_like, optional
        Of shape (outputs,).
    stride, padding, dilation : int or tuple of int
        As of :func:`conv2d`.
    groups : int
        As of :func:`conv2d`.
    activation : str or callable, optional
        As of :func:`conv2d`.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched import ops
    >>> x = da.ones((1, 2, 6), chunks=2)
    >>> ops.conv1d(x, da.ones((1, 2, 3)), padding=1).compute()[0, 0]
    array([4., 6., 6., 6., 6., 4.])
    """
    return _convolved(1, x, weight, bias, stride, padding, dilation, groups, activation)


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    activation: Activation = None,
) -> Any:
    """Convolve over the last two axes: the products of a window and the weights, summed.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of shape (batch, channels, height, width), float32 or float64. Chunked along any axis; the
        channels are brought into one chunk. Chunks are read with the halo that they need.
    weight : array_like
        Of shape (outputs, channels / groups, height, width), of the dtype of `x`.
    bias : array_like, optional
        Of shape (outputs,).
    stride, padding, dilation : int or tuple of int
        One number for all axes, or one for each. Padding adds zeros.
    groups : int
        Into which channels and outputs are divided, each convolved by itself.
    activation : str or callable, optional
        A name or a function, as of :func:`gpusched.ops.linear`; one kernel with the bias.

    Raises
    ------
    ValueError
        If shapes do not match, or no window fits into `x`.
    TypeError
        If `weight` has another dtype.

    Notes
    -----
    One matrix product (BLAS, cuBLAS) of each chunk for each element of a window: no copy of all
    windows is made.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched import ops
    >>> x = da.ones((1, 1, 4, 4), chunks=2)
    >>> ops.conv2d(x, da.ones((1, 1, 3, 3)), padding=1).compute()[0, 0]
    array([[4., 6., 6., 4.],
           [6., 9., 9., 6.],
           [6., 9., 9., 6.],
           [4., 6., 6., 4.]])
    """
    return _convolved(2, x, weight, bias, stride, padding, dilation, groups, activation)


def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    activation: Activation = None,
) -> Any:
    """Convolve over the last three axes: as :func:`conv2d` does over two.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of shape (batch, channels, depth, height, width).
    weight : array_like
        Of shape (outputs, channels / groups, depth, height, width).
    bias : array_like, optional
        Of shape (outputs,).
    stride, padding, dilation : int or tuple of int
        As of :func:`conv2d`.
    groups : int
        As of :func:`conv2d`.
    activation : str or callable, optional
        As of :func:`conv2d`.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched import ops
    >>> x = da.ones((1, 1, 2, 4, 4), chunks=2)
    >>> ops.conv3d(x, da.ones((1, 1, 3, 3, 3)), padding=1).compute()[0, 0, 0, 0]
    array([ 8., 12., 12.,  8.])
    """
    return _convolved(3, x, weight, bias, stride, padding, dilation, groups, activation)


def _convolved(
    ndim: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    groups: int,
    activation: Activation,
) -> Any:
    function = named(activation)
    weight, bias = as_weight(weight), as_weight(bias)
    _check(x, weight, bias, groups, ndim)
    windows = Windows.of(weight.shape[2:], stride, padding, dilation, ndim)
    kept = weight
    if isinstance(x, da.Array):
        x, kept = whole(x, 1), parameter(weight)
    y = over(_convolve, x, windows, x.dtype.type(0), len(weight), weight=kept, groups=groups)
    return function(y if bias is None else y + beside(bias, y, (1,)))


def _check(x: Any, weight: Any, bias: Any, groups: int, ndim: int) -> None:
    if x.ndim != ndim + 2 or weight.ndim != ndim + 2:
        raise ValueError(
            f"x has shape {x.shape} and weight {weight.shape}, but both have {ndim + 2} axes: "
            "(batch, channels, ...) and (outputs, channels, ...)"
        )
    if groups < 1 or x.shape[1] % groups or weight.shape[0] % groups:
        raise ValueError(
            f"{x.shape[1]} channels and {weight.shape[0]} outputs cannot be divided into "
            f"{groups} groups"
        )
    shape = (weight.shape[0], x.shape[1] // groups, *weight.shape[2:])
    check_shape("weight", weight, shape, f"x of shape {x.shape} in {groups} groups")
    if bias is not None:
        check_shape("bias", bias, weight.shape[:1], f"weight of shape {weight.shape}")
    if x.dtype.kind != "f" or weight.dtype != x.dtype:
        raise TypeError(
            f"x is {x.dtype} and weight {weight.dtype}, but both must be of one float dtype: "
            "use astype"
        )


def _convolve(
    x: Any, windows: Windows, counts: tuple[int, ...], *, weight: Any, groups: int
) -> Any:
    """Sum over the places in a window: weights there, times the elements that all windows have."""
    batch, channels = x.shape[:2]
    split = like(weight, x).reshape(groups, -1, *weight.shape[1:])
    y = None
    for place, elements in windows.views(x, counts):
        columns = elements.reshape(batch, groups, channels // groups, math.prod(counts))
        product = np.matmul(split[(..., *place)], columns)
        if y is None:
            y = product
        else:
            y += product
    assert y is not None
    return y.reshape(batch, len(weight), *counts)
