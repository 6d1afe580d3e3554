"""Lanes along an axis, all at once: functions of them, xarray's polynomials and interpolation.

dask calls a Python function for each lane of a chunk, in `numpy.apply_along_axis` and in
`numpy.vectorize`. What programs call instead (`along_axis`, `vectorized`) is examined with that
function, which is called once for all lanes where it may be (`gpusched.record.lanewise`). What most
lanes come to where xarray fits polynomials is computed here by a few calls for all of them; others,
such as those with NaN, are left to the function itself. Parabolas of 1,600 lanes of 365 elements
took 0.22 s of processor time, and take 0.04.

For interpolation xarray gives SciPy's `interp1d` a chunk and two coordinates. Which neighbours a
point has, and how far it is from the first, `between` finds by the coordinates alone; the rest is
arithmetic, whose kernel reads both neighbours in place: it moves 3 MB where 21 are moved without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from gpusched.adapters import scipy, xarray
from gpusched.adapters.tasks import Tuple
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.plan.expression import UnfusibleError
from gpusched.record import lanewise
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk
from gpusched.record.gathers import gathered
from gpusched.record.handlers import recording
from gpusched.record.record import Recorder
from gpusched.record.recorded import StandIn, recorder_among

CACHED = 1 << 17
"""Elements that are gone through while they are in the cache."""

CONDITION = 1e8
"""Columns whose singular values are farther apart are left to LAPACK: less than half of the digits
of what it finds, and of what would be found here, would be the same."""

ORDINARY = 1e-100, 1e100
"""Between these, no square is beyond what floats are, and LAPACK does not scale lanes."""


@own("examined", shown="apply_along_axis")
def along_axis(arr: Any, func1d: Any, func1d_axis: Any, func1d_args: Any,
               **func1d_kwargs: Any) -> Any:  # fmt: skip
    """Do what dask's function does, which calls `func1d` for each lane along an axis."""
    return each_along(func1d, func1d_axis, arr, *func1d_args, **func1d_kwargs)


def called_along(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what `along_axis` is given by name, where dask's function has a dictionary of options.

    Each argument of `func1d` is one of its own then, and may be a chunk. None where that is not
    possible.

    Examples
    --------
    >>> from gpusched.graph.functions.lanes import called_along
    >>> called_along({"func1d": max, "func1d_args": (), "func1d_kwargs": {"default": 1}})
    {'func1d': <built-in function max>, 'func1d_args': (), 'default': 1}
    """
    others = dict(given)
    options, args = others.pop("func1d_kwargs", None), others.get("func1d_args")
    if type(options) is not dict or not {"arr", *others}.isdisjoint(options):
        return None
    if type(args) is tuple and args:
        others["func1d_args"] = Tuple(*args)
    return {**others, **options}


@own("examined", shown="apply_along_axis")
def applied_along(func1d: Any, axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what `numpy.apply_along_axis` does, given to `map_blocks`."""
    return each_along(func1d, axis, arr, *args, **kwargs)


def each_along(func1d: Any, axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what `numpy.apply_along_axis` does."""
    found = None
    if xarray.is_nanpolyfit(func1d) and axis == 0 and len(args) == 1:
        found = least_squares(func1d, arr, *args, **kwargs)
    if found is not None:
        return found
    return np.apply_along_axis(func1d, axis, arr, *args, **kwargs)


@own("examined", shown="vectorize")
def vectorized(pyfunc: Any, signature: str, otypes: str | None, *args: Any) -> Any:
    """Do what an object of `numpy.vectorize` does, by its signature."""
    return each_with(pyfunc, signature, otypes, *args)


def each_with(pyfunc: Any, signature: str, otypes: str | None, *args: Any) -> Any:
    """Call a function for each lane of its arguments."""
    recorder = recorder_among(args)
    if recorder is None:
        return np.vectorize(pyfunc, otypes, signature=signature)(*args)
    with recording(recorder):
        return lanewise.each_by(recorder, pyfunc, signature, otypes, args)


def calls_lanes(function: Any) -> Callable[..., Any] | None:
    """Return what says which function a call of one calls for lanes, and with what; None of others.

    Examples
    --------
    >>> from gpusched.graph.functions.lanes import calls_lanes
    >>> calls_lanes(np.apply_along_axis)(max, 0, 1.5, 2)
    (<built-in function max>, (1.5,), (2,), {})
    """
    return _CALLING.get(id(function))


def _along(func1d: Any, axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Any:
    return func1d, (arr,), args, kwargs


def _with(pyfunc: Any, signature: Any, otypes: Any, *args: Any) -> Any:
    return pyfunc, args, (), {}


_CALLING: dict[int, Callable[..., Any]] = {
    id(np.apply_along_axis): _along,
    id(each_along): _along,
    id(each_with): _with,
}


def vectorized_for(function: Any) -> Any:
    """Return what programs call instead of an object of `numpy.vectorize`, or `function`.

    Examples
    --------
    >>> from gpusched.graph.functions.lanes import vectorized_for
    >>> vectorized_for(np.vectorize(np.mean, signature="(n)->()")).func.__name__
    'vectorized'
    """
    if type(function) is not np.vectorize or function.signature is None or function.excluded:
        return function
    return partial(vectorized, function.pyfunc, function.signature, function.otypes)


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


# Interpolation ------------------------------------------------------------------------


@dataclass(frozen=True)
class Interpolated(StandIn):
    """xarray's function of a chunk, its coordinates along the last axis, and other ones.

    Equal ones compute the same, so that plans hold from graph to graph.
    """

    extrapolate: bool
    """Whether the outermost lines go on; NaN is beyond them if not."""
    given: Any = field(compare=False)
    """xarray's own function, as xarray gives it to dask."""

    __name__ = "_interpnd"
    sealed = (1, 2)

    def plain(self, data: Any, x: Any, new: Any, lines: Any = None) -> Any:
        """Return what xarray's own function does."""
        del lines
        return self.given(data, x.value, new.value)

    def taken(self, args: tuple[Any, ...]) -> dict[str, tuple[Any, tuple[Any, ...]]]:
        """Return the call that finds neighbours."""
        return {"lines": (between, args[1:])}

    def record(self, recorder: Recorder, data: LazyChunk, x: Any, new: Any, lines: Any) -> Any:
        """Return values at the new coordinates; `lines` is what `between` makes of both."""
        if lines is None:
            raise UnfusibleError(GraphBreak.OPERAND, "coordinates that are not two ascending rows")
        if data.dtype.char not in "fdbhilqBHIL":
            raise UnfusibleError(GraphBreak.DTYPE, f"interpolation of {data.dtype}")
        if data.ndim == 1:  # SciPy calls `numpy.interp`, which treats NaN and rounds its own way.
            raise UnfusibleError(GraphBreak.NO_KERNEL, "interpolation of one lane")
        values = data if data.dtype.kind == "f" else data.astype(np.float64)
        first, before, behind, outside = lines
        low, high = (
            gathered(values[..., part], first, data.ndim - 1)
            for part in (slice(-1), slice(1, None))
        )
        # As SciPy has it, so that each result is rounded as SciPy's.
        if scipy.weighs_neighbours():
            found = before * high + behind * low
        else:
            found = (high - low) / behind * before + low
        return found if self.extrapolate else np.where(outside, np.nan, found)


@own("quick")
def between(x: Any, new: Any) -> Any:
    """Return where points are along a line of neighbours.

    Parameters
    ----------
    x
        Coordinates of values.
    new
        Those of the points.

    Returns
    -------
    tuple of arrays, or None
        For each point the place of the neighbour before it, the weights of the next one and of
        this one, and whether it is beyond all; None for what are not two ascending rows. Where
        SciPy does not weigh neighbours: how far the point is from the one before it, and how far
        those are apart.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.lanes import between
    >>> between(np.array([0, 2, 4]), np.array([3.0, 5.0]))[0]
    array([1, 1])
    """
    rows = all(type(each) is np.ndarray and each.ndim == 1 for each in (x, new))
    if not rows or len(x) < 2 or not len(new) or not (x[1:] > x[:-1]).all():
        return None
    near, places, points = xarray.coordinates(x, new)
    points = points if points.dtype.kind in "fc" else points.astype(np.float64)  # as SciPy has it
    second = np.searchsorted(near, points).clip(1, len(near) - 1)
    first = second - 1
    outside = (points < near[0]) | (points > near[-1])
    before, width = points - near[first], near[second] - near[first]
    if scipy.weighs_neighbours():
        return places[first], before / width, (near[second] - points) / width, outside
    return places[first], before, width, outside


def interpolated_for(function: Any) -> Any:
    """Return what programs call for xarray's function as xarray gives it, or `function`.

    Examples
    --------
    >>> from gpusched.graph.functions.lanes import interpolated_for
    >>> interpolated_for(max) is max
    True
    """
    if type(function) is not partial or function.args:
        return function
    options = function.keywords
    if not xarray.is_interpolation(function.func) or options.keys() != _OPTIONS:
        return function
    how, dims = options["interp_kwargs"], options["result_coord_core_dims"]
    fill = how.get("fill_value")
    extrapolates = type(fill) is str and fill == "extrapolate"  # it may be an array
    known = how.keys() == ({"method", "fill_value"} if extrapolates else {"method"})
    linear = xarray.is_linear(options["interp_func"]) and how.get("method") == "linear"
    if not linear or not known or len(dims) != 1 or len(dims[0]) != 1:
        return function
    return Interpolated(extrapolates, function)


_OPTIONS = {"interp_func", "interp_kwargs", "result_coord_core_dims"}
