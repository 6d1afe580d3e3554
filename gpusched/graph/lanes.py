"""`numpy.apply_along_axis` of functions that are known, for all lanes at once.

dask calls a Python function for each lane of a chunk. What most lanes come to is computed here by
a few calls for all of them; others, such as those with NaN, are left to the function itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.adapters import xarray
from gpusched.adapters.arrays import apply_along_axis

CACHED = 1 << 17
"""Elements that are gone through while they are in the cache."""

CONDITION = 1e8
"""Columns whose singular values are farther apart are left to LAPACK: less than half of the digits
of what it finds, and of what would be found here, would be the same."""

ORDINARY = 1e-100, 1e100
"""Between these, no square is beyond what floats are, and LAPACK does not scale lanes."""


def along_axis(arr: Any, func1d: Any, func1d_axis: Any, func1d_args: Any,
               func1d_kwargs: Any) -> Any:  # fmt: skip
    """Do what dask's function does, which calls `func1d` for each lane along an axis."""
    found = None
    if xarray.is_nanpolyfit(func1d) and func1d_axis == 0 and len(func1d_args) == 1:
        found = least_squares(func1d, arr, *func1d_args, **func1d_kwargs)
    if found is not None:
        return found
    return apply_along_axis(arr, func1d, func1d_axis, func1d_args, func1d_kwargs)


def least_squares(function: Any, values: Any, x: Any, rcond: float | None = None) -> Any:
    """Return the coefficients and the squared residual of each column, as a function fits one.

    Parameters
    ----------
    function
        Fits a column, without its NaN, by `numpy.linalg.lstsq`: it is called for those that are
        not ordinary numbers.
    values
        The columns.
    x
        What each is a combination of, in columns.
    rcond
        As NumPy has it.

    Returns
    -------
    array, or None
        A row for each coefficient, and one of residuals; None if all are left to `function`.

    Notes
    -----
    The solution of ``R c = Q' b``, where ``QR`` is `x`, is backward stable as LAPACK's by singular
    values is (Golub and Van Loan, Matrix Computations, 5.3); both are within rounding of the least
    squares, the more so the better `x` is conditioned. Residuals are those of the solution.
    """
    if not _are_columns(values, x) or not len(x) == len(values) > x.shape[1] > 0:
        return None
    singular = np.linalg.svd(x, compute_uv=False)
    least = np.finfo(float).eps * len(x) if rcond is None else rcond
    if not singular[-1] > singular[0] * max(4 * least, 1 / CONDITION):
        return None  # It may be of a lower rank, of which the function warns.
    q, r = np.linalg.qr(x)
    count = x.shape[1]
    out = np.empty((values.shape[1], count + 1)).T  # in memory as NumPy's function has it
    low, high = np.full((2, values.shape[1]), [[np.inf], [-np.inf]])
    product = np.zeros((count, values.shape[1]))
    with np.errstate(all="ignore"):
        for start, block in _blocks(values):
            np.minimum(low, block.min(axis=0), out=low)
            np.maximum(high, block.max(axis=0), out=high)
            product += q[start : start + len(block)].T @ block
        peak = np.maximum(high, -low)
        ordinary = (peak > ORDINARY[0]) & (peak < ORDINARY[1])  # False for NaN
        out[:-1] = np.linalg.solve(r, product)
        out[-1] = 0
        for start, block in _blocks(values):
            away = block - x[start : start + len(block)] @ out[:-1]
            out[-1] += np.square(away, out=away).sum(axis=0)
    if not ordinary.all():
        out[:, ~ordinary] = np.apply_along_axis(function, 0, values[:, ~ordinary], x, rcond=rcond)
    return out


def _are_columns(values: Any, x: Any) -> bool:
    plain = type(values) is type(x) is np.ndarray and values.dtype.char in "fd"
    if not plain or x.dtype.char != "d" or values.ndim != 2 or x.ndim != 2 or not values.size:
        return False
    peaks = np.abs(x).max(axis=0)
    return bool(((peaks > ORDINARY[0]) & (peaks < ORDINARY[1])).all())


def _blocks(values: np.ndarray) -> Any:
    """Yield some rows at a time, as float64, and the number of the first."""
    rows = max(CACHED // values.shape[1], 1)
    for start in range(0, len(values), rows):
        yield start, values[start : start + rows].astype(np.float64, copy=False)
