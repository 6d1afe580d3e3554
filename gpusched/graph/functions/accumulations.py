"""NumPy's accumulations along an axis: what runs instead of them while they have no kernel.

NumPy follows one element after the other along the axis, far apart in memory where rows are long.
Row after row, the same sums of the same numbers are made in the order of memory: of two chunks of
365 x 200 x 100 at a time on two cores, `numpy.cumsum` takes 0.15 of the time for float32, and 0.3
for float64; of 30 x 1000 x 1000, 0.15 and 0.26; of 500 x 2000, 0.7 and 0.9 (AMD EPYC).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.backends.devices import HOST
from gpusched.emit.floatingpoint import collecting, heeded
from gpusched.record.catalogue import own

LONG = 2048
"""Elements of a row, at least: a call for each of shorter ones takes longer than what it saves."""


@own("recorded", "lean", "fresh", shown="cumsum")
def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Do what `numpy.cumsum` does, with the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.accumulations import cumsum
    >>> cumsum(np.ones((3, 2)), axis=0)
    array([[1., 1.],
           [2., 2.],
           [3., 3.]])
    """
    return _accumulated(np.cumsum, np.add, a, axis, dtype)


@own("recorded", "lean", "fresh", shown="cumprod")
def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Do what `numpy.cumprod` does, with the same bits."""
    return _accumulated(np.cumprod, np.multiply, a, axis, dtype)


@own("recorded", "fresh", shown="nancumsum")
def nancumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Do what `numpy.nancumsum` does, with the same bits."""
    return _accumulated(np.nancumsum, np.add, a, axis, dtype, 0.0)


@own("recorded", "fresh", shown="nancumprod")
def nancumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Do what `numpy.nancumprod` does, with the same bits."""
    return _accumulated(np.nancumprod, np.multiply, a, axis, dtype, 1.0)


BY_ROWS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.cumsum: cumsum,
    np.cumprod: cumprod,
    np.nancumsum: nancumsum,
    np.nancumprod: nancumprod,
}
"""By functions of NumPy's: what runs instead of them."""


def _accumulated(function: Callable[..., Any], ufunc: np.ufunc, a: Any, axis: Any, dtype: Any,
                 instead: float | None = None) -> Any:  # fmt: skip
    """Return what a function of NumPy's does.

    Parameters
    ----------
    function
        That function. It takes arrays that have not long rows, lazy chunks among others, and those
        of which there is an error to report.
    ufunc
        What joins two elements.
    a, axis, dtype
        What the function is given.
    instead
        What it has instead of NaN; None if NaN is joined.
    """
    if _has_long_rows(a, axis, dtype):
        found = HOST.empty(a.shape, a.dtype)
        errors: list[int] = []
        with collecting(heeded(), errors.append):
            shape = math.prod(a.shape[:axis]), a.shape[axis], -1
            _join_rows(ufunc, a.reshape(shape), found.reshape(shape), instead)
        if not errors:
            return found
    return function(a, axis=axis, dtype=dtype)


def _has_long_rows(a: Any, axis: Any, dtype: Any) -> bool:
    """Return whether an array is NumPy's own of floating-point numbers in long rows."""
    if type(a) is not np.ndarray or a.dtype.kind not in "fc" or type(axis) is not int:
        return False
    as_it_is = a.dtype.isnative and dtype in (None, a.dtype) and a.flags.c_contiguous
    long = as_it_is and 0 <= axis < a.ndim and math.prod(a.shape[axis + 1 :]) >= LONG
    return long and a.size > 0


def _join_rows(ufunc: np.ufunc, given: np.ndarray, found: np.ndarray, instead: Any) -> None:
    """Write what rows are joined with all before to an array of the same shape, of three axes."""
    if instead is not None:
        np.copyto(found, given)
        np.copyto(found, instead, where=np.isnan(given))
        given = found
    for whole, part in zip(given, found, strict=True):
        last = part[0]
        last[...] = whole[0]
        for row, out in zip(whole[1:], part[1:], strict=True):
            last = ufunc(last, row, out=out)
