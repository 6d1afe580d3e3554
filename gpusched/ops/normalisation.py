"""Normalisation by mean and variance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.ops.chunks import along, as_weight, beside, check_shape, floating


def layer_norm(
    x: Any,
    axis: int | tuple[int, ...] = -1,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
) -> Any:
    """Normalise over some axes: ``(x - mean) / sqrt(variance + eps) * weight + bias``.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of any shape, float32 or float64; integers become one of them. One task a
        chunk if the axes are in one chunk.
    axis : int or tuple of int
        Over which the mean and the variance (of the population) are taken.
    weight, bias : array_like, optional
        Of the shape of `x` along these axes.
    eps : float
        Added to the variance.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    TypeError
        If `x` is of no real dtype.
    ValueError
        If ``weight`` or ``bias`` has another shape.

    References
    ----------
    Ba, Kiros, Hinton: Layer normalization. arXiv:1607.06450.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched import ops
    >>> ops.layer_norm(da.array([[1.0, 3.0], [10.0, 30.0]])).compute().round(3)
    array([[-1.,  1.],
           [-1.,  1.]])
    """
    x = floating(x)
    axes = normalize_axis_tuple(axis, x.ndim)
    y = along(_standardise, x, axes, eps=eps)
    return _scaled(y, x, axes, weight, bias)


def batch_norm(
    x: Any,
    mean: Any = None,
    variance: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    axis: int = 1,
) -> Any:
    """Normalise each channel: ``(x - mean) / sqrt(variance + eps) * weight + bias``.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of any shape, float32 or float64; integers become one of them.
    mean, variance : array_like, optional
        Of each channel, as a trained model holds them; those of `x` itself (of the population) if
        neither is given, as in training.
    weight, bias : array_like, optional
        Of each channel.
    eps : float
        Added to the variance.
    axis : int
        Of the channels.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    TypeError
        If `x` is of no real dtype.
    ValueError
        If one of ``mean`` and ``variance`` is missing, or any has another shape than one value
        for each channel.

    References
    ----------
    Ioffe, Szegedy: Batch normalization. arXiv:1502.03167.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched import ops
    >>> x = np.array([[1.0, 10.0], [3.0, 30.0]])
    >>> ops.batch_norm(x).round(3)
    array([[-1., -1.],
           [ 1.,  1.]])
    """
    x = floating(x)
    (channel,) = axes = normalize_axis_tuple(axis, x.ndim)
    if (mean is None) != (variance is None):
        missing = "mean" if mean is None else "variance"
        raise ValueError(f"{missing} is missing: give both mean and variance, or neither")
    mean, variance = as_weight(mean), as_weight(variance)
    if mean is None:
        others = tuple(i for i in range(x.ndim) if i != channel)
        return _scaled(_standardise(x, others, eps), x, axes, weight, bias)
    for name, value in (("mean", mean), ("variance", variance)):
        check_shape(name, value, (x.shape[channel],), f"axis {channel} of {x.shape}")
    y = (x - beside(mean, x, axes)) / np.sqrt(beside(variance, x, axes) + eps)
    return _scaled(y, x, axes, weight, bias)


def _standardise(x: Any, axis: tuple[int, ...], eps: float) -> Any:
    count = math.prod(x.shape[i] for i in axis)
    centred = x - np.sum(x, axis=axis, keepdims=True) / count
    variance = np.sum(centred * centred, axis=axis, keepdims=True) / count
    return centred / np.sqrt(variance + eps)


def _scaled(y: Any, x: Any, axes: tuple[int, ...], weight: Any, bias: Any) -> Any:
    shape = tuple(x.shape[i] for i in axes)
    weight, bias = as_weight(weight), as_weight(bias)
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None:
            check_shape(name, value, shape, f"axes {axes} of {x.shape}")
    if weight is not None:
        y = y * beside(weight, x, axes)
    return y if bias is None else y + beside(bias, x, axes)
