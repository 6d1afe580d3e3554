"""How functions of arrays are applied to chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.delayed import Delayed, delayed
from numpy.lib.array_utils import normalize_axis_tuple


def along(function: Callable[..., Any], x: Any, axis: int | tuple[int, ...], **kwargs: Any) -> Any:
    """Apply a function that keeps the shape: to each chunk if the axes are in one.

    Parameters
    ----------
    function
        Called as ``function(x, axis, **kwargs)``, of arrays or of chunks.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    """
    axes = normalize_axis_tuple(axis, np.ndim(x))
    whole = isinstance(x, da.Array) and all(len(x.chunks[i]) == 1 for i in axes)
    if not whole:
        return function(x, axes, **kwargs)
    one = function(np.ones((1,) * x.ndim, x.dtype), axes, **kwargs)
    return x.map_blocks(
        function, axis=axes, dtype=one.dtype, meta=meta_from_array(x).astype(one.dtype), **kwargs
    )


def floating(x: Any) -> Any:
    """Return real numbers in a dtype that has fractions: those of small integers in float32.

    Raises
    ------
    TypeError
        If they are not real numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.ops.chunks import floating
    >>> floating(np.array([255], dtype="uint8")).dtype, floating(np.array([1])).dtype
    (dtype('float32'), dtype('float64'))
    """
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if x.dtype.kind == "f":
        return x
    if x.dtype.kind in "biu":
        return x.astype(np.result_type(x.dtype, np.float32))
    raise TypeError(f"an array of {x.dtype} was given: real numbers are needed")


def as_weight(value: Any) -> Any:
    """Return a weight as an array: one of NumPy's for a list, what it is for arrays and None."""
    return value if value is None or hasattr(value, "shape") else np.asarray(value)


def whole(x: da.Array, axis: int) -> da.Array:
    """Return the array with an axis in one chunk."""
    return x if len(x.chunks[axis]) == 1 else x.rechunk({axis: -1})


def parameter(value: Any) -> Delayed:
    """Return a weight as one value that the graph holds once, whatever the number of chunks."""
    if isinstance(value, da.Array):
        # By a key that is no chunk's: dask's culling takes (name, 0, 0) for one of its own, and
        # loses it, or not, by the order of a set.
        return delayed(same, pure=True)(value.rechunk(-1).to_delayed().item())
    return delayed(value, pure=True, traverse=False)


def same(value: Any) -> Any:
    """Return what is given."""
    return value


def like(value: Any, x: Any) -> Any:
    """Return a weight as an array of the library of `x`, or of its chunks."""
    if isinstance(value, da.Array):
        return value
    return np.asarray(value, like=meta_from_array(x) if isinstance(x, da.Array) else x)


def beside(value: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """Return a weight so that it broadcasts: its axes beside these axes of `x`."""
    value = like(value, x)
    shape = [1] * x.ndim
    for axis, size in zip(axes, value.shape, strict=True):
        shape[axis] = size
    return value.reshape(shape)


def check_shape(name: str, value: Any, shape: tuple[int, ...], why: str) -> None:
    """Refuse a weight of another shape.

    Raises
    ------
    ValueError
        That names the weight, its shape, and the one that it should have.
    """
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(value.shape)}, but {why} needs {shape}")
