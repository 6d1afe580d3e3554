"""What the source of a raw kernel calls: checked indices, and atomics that are plain operations.

Threads run one after another on one core, so that nothing comes between a read and a write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import overload

from gpusched.kernels.host.cuda_names import ATOMICS


def device(function: Callable[..., Any]) -> Any:
    """Return a function compiled as a part of kernels, which allocate nothing."""
    # Without NRT no reference to an array is counted, for each thread and each array.
    options = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, "forceinline": True}
    return numba.njit(error_model="numpy", fastmath=False, _nrt=False, **options)(function)


def inside(index: Any, array: Any, axis: int, site: int, fault: Any) -> Any:
    """Return an index; `IndexError` unless it is inside of `array` along `axis`.

    The site, the index and the axis's length are left in `fault`.
    """
    raise NotImplementedError("called by compiled code only")


@device
def _check(index: Any, length: int, site: int, fault: Any) -> Any:
    at = np.int64(index)  # What is negative for being too large is outside, too.
    if at < 0 or at >= length:
        fault[0], fault[1], fault[2] = site, at, length
        raise IndexError("outside")
    return at


@overload(inside, strict=False)
def _inside(index: Any, array: Any, axis: Any, site: Any, fault: Any) -> Any:
    if not isinstance(array, types.Array):
        # A tuple of numbers.
        return lambda index, array, axis, site, fault: index
    if isinstance(index, types.Integer):
        return lambda index, array, axis, site, fault: _check(index, array.shape[axis], site, fault)
    if isinstance(index, types.BaseTuple) and all(isinstance(i, types.Integer) for i in index):
        return _TUPLES.get(len(index))
    return None


def _one(index: Any, array: Any, axis: int, site: int, fault: Any) -> Any:
    return (_check(index[0], array.shape[0], site, fault),)


def _two(index: Any, array: Any, axis: int, site: int, fault: Any) -> Any:
    first = _check(index[0], array.shape[0], site, fault)
    return first, _check(index[1], array.shape[1], site, fault)


def _three(index: Any, array: Any, axis: int, site: int, fault: Any) -> Any:
    first = _check(index[0], array.shape[0], site, fault)
    second = _check(index[1], array.shape[1], site, fault)
    return first, second, _check(index[2], array.shape[2], site, fault)


_TUPLES = {1: _one, 2: _two, 3: _three}


def _atomic(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    changed = device(change)

    def atomic(array: Any, index: Any, value: Any) -> Any:
        before = array[index]
        array[index] = changed(before, value)
        return before

    return device(atomic)


@device
def _compare_and_swap(array: Any, index: Any, old: Any, value: Any) -> Any:
    before = array[index]
    if before == old:
        array[index] = value
    return before


FUNCTIONS: dict[str, Any] = {
    **{f"atomic_{name.rstrip('_')}": _atomic(change) for name, change in ATOMICS.items()},
    "atomic_cas": _compare_and_swap,
    "inside": inside,
}
"""By their names in the source."""
