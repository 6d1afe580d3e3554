"""The linear layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpusched.ops.activations import activation as named
from gpusched.ops.chunks import as_weight, check_shape, like


def linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    activation: str | Callable[[Any], Any] | None = None,
) -> Any:
    """Return ``activation(x @ weight.T + bias)``.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of shape (..., inputs).
    weight : array_like
        Of shape (outputs, inputs), as torch has it.
    bias : array_like, optional
        Of shape (outputs,).
    activation : str or callable, optional
        ``"relu"``, ``"sigmoid"``, ``"silu"``, ``"gelu"`` or ``"tanh"``, or a function of arrays;
        one kernel with the bias.

    Raises
    ------
    ValueError
        If shapes do not match, or for an unknown activation.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from gpusched import ops
    >>> x = da.ones((3, 2), chunks=(2, 2))
    >>> ops.linear(x, np.array([[1.0, 2.0]]), np.array([-4.0]), "relu").compute()
    array([[0.],
           [0.],
           [0.]])
    """
    function = named(activation)
    weight, bias = as_weight(weight), as_weight(bias)
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {weight.shape}, but is (outputs, inputs)")
    check_shape("weight", weight, (weight.shape[0], x.shape[-1]), f"x of shape {x.shape}")
    y = x @ like(weight, x).T
    if bias is not None:
        check_shape("bias", bias, weight.shape[:1], f"weight of shape {weight.shape}")
        y = y + like(bias, x)
    return function(y)
