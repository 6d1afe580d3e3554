"""How much memory a task's result takes, and where."""

from __future__ import annotations

import math
from typing import Any

from distributed.sizeof import safe_sizeof

from gpusched.placed import Placed

DEPTH = 4
"""Levels of lists, tuples and dictionaries that are searched for device arrays."""


def device_nbytes(value: Any, depth: int = DEPTH) -> int:
    """Return the bytes of GPU memory that a value holds, in collections too.

    Broadcast arrays count what is behind them, so at most what their strides reach.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.workers.memory.sizes import device_nbytes
    >>> device_nbytes(np.ones(3))
    0
    """
    if type(value) is Placed:
        return _own_nbytes(value.array)
    if hasattr(type(value), "__cuda_array_interface__"):
        return _own_nbytes(value)
    if depth and isinstance(value, list | tuple | set | frozenset):
        return sum(device_nbytes(item, depth - 1) for item in value)
    if depth and isinstance(value, dict):
        return sum(device_nbytes(item, depth - 1) for item in value.values())
    return 0


def _own_nbytes(value: Any) -> int:
    # torch's and JAX's arrays have no such attribute where they lie on the host. On the GPU torch
    # refuses it with an error for tensors that need a gradient, JAX for bfloat16.
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except RuntimeError:
        return int(value.nbytes)
    return 0 if interface is None else _extent(interface)


def _extent(interface: dict[str, Any]) -> int:
    shape, itemsize = interface["shape"], int(interface["typestr"][2:])
    if 0 in shape:
        return 0
    strides = interface.get("strides")
    if strides is None:
        return math.prod(shape) * itemsize
    steps = zip(shape, strides, strict=True)
    return itemsize + sum((size - 1) * abs(stride) for size, stride in steps)


def host_nbytes(value: Any) -> int:
    """Return the bytes of host memory that a value takes, by dask's estimate.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.workers.memory.sizes import host_nbytes
    >>> host_nbytes(np.ones(1000)) >= 8000
    True
    """
    return int(safe_sizeof(value))
