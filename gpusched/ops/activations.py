"""Elementwise activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.kernels import kernel
from gpusched.ops.chunks import floating, same


@kernel("float32(float32)", "float64(float64)")
def _erf(x):  # type: ignore[no-untyped-def]
    return math.erf(x)


def relu(x: Any) -> Any:
    """Return the positive part, ``maximum(x, 0)``.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of any shape and real dtype, which the result has as well.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched import ops
    >>> ops.relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return np.maximum(x, 0)


def sigmoid(x: Any) -> Any:
    """Return the logistic function ``1 / (1 + exp(-x))``, which overflows nowhere.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of any shape and real dtype. The result is floating: float32 of integers of up to 16 bits,
        float64 of larger ones.

    Raises
    ------
    TypeError
        If `x` is of no real dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched import ops
    >>> ops.sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    x = floating(x)
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, decay) / (1 + decay)


def silu(x: Any) -> Any:
    """Return ``x * sigmoid(x)``, also called swish.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of any shape and real dtype. The result is floating: float32 of integers of up to 16 bits,
        float64 of larger ones.

    Raises
    ------
    TypeError
        If `x` is of no real dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched import ops
    >>> ops.silu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.2689,  0.    ,  0.7311])
    """
    x = floating(x)
    return x * sigmoid(x)


def gelu(x: Any, approximate: str = "none") -> Any:
    """Return the Gaussian error linear unit.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of any shape, float32 or float64; integers become one of them. With ``approximate="tanh"``
        of any real dtype.
    approximate : {'none', 'tanh'}
        ``"none"`` for ``x / 2 * (1 + erf(x / sqrt(2)))``, ``"tanh"`` for the approximation
        ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``.

    Raises
    ------
    ValueError
        For another ``approximate``.
    TypeError
        If `x` is of no real dtype.

    References
    ----------
    Hendrycks, Gimpel: Gaussian error linear units. arXiv:1606.08415.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched import ops
    >>> ops.gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    x = floating(x)
    if approximate == "none":
        return 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    raise ValueError(f"approximate is 'none' or 'tanh', not {approximate!r}")


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": relu,
    "sigmoid": sigmoid,
    "silu": silu,
    "gelu": gelu,
    "tanh": np.tanh,
}
"""Those that can be asked for by name."""


def activation(asked: str | Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return the activation that was asked for by name, or as a function; none changes nothing.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    if asked is None:
        return same
    if callable(asked):
        return asked
    if asked not in ACTIVATIONS:
        raise ValueError(f"no activation {asked!r}: there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[asked]
