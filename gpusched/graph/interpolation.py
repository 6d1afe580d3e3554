"""xarray's linear interpolation along one axis, whose kernels read both neighbours in place.

xarray gives SciPy's `interp1d` a chunk and two coordinates. Which neighbours a point has, and how
far it is from the first, `between` finds by the coordinates alone; the rest is arithmetic.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from gpusched.adapters import xarray
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.plan.expression import UnfusibleError
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk
from gpusched.record.gathers import gathered
from gpusched.record.recorded import StandIn


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

    def plain(self, data: Any, x: Any, new: Any, lines: Any = None) -> Any:
        """Return what xarray's own function does."""
        del lines
        return self.given(data, x, new)

    def taken(self, args: tuple[Any, ...]) -> dict[str, tuple[Any, tuple[Any, ...]]]:
        """Return the call that finds neighbours."""
        return {"lines": (between, args[1:])}

    def __call__(self, data: Any, x: Any, new: Any, lines: Any) -> Any:
        """Return values at the new coordinates; `lines` is what `between` makes of both."""
        if not isinstance(data, LazyChunk):
            return self.plain(data, x, new)
        try:
            return self._interpolated(data, lines)
        except UnfusibleError as error:
            data._recorder.stop(error.reason)

    def _interpolated(self, data: LazyChunk, lines: Any) -> Any:
        if lines is None:
            raise UnfusibleError(GraphBreak.OPERAND, "coordinates that are not two ascending rows")
        if data.dtype.char not in "fdbhilqBHIL":
            raise UnfusibleError(GraphBreak.DTYPE, f"interpolation of {data.dtype}")
        values = data if data.dtype.kind == "f" else data.astype(np.float64)
        first, away, width, outside = lines
        low, high = (
            gathered(values[..., part], first, data.ndim - 1)
            for part in (slice(-1), slice(1, None))
        )
        # As `interp1d` has it, so that each result is rounded as SciPy's.
        found = (high - low) / width * away + low
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
        For each point the place of the neighbour before it, how far it is from there, how far the
        next one is, and whether it is beyond all; None for what are not two ascending rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.interpolation import between
    >>> between(np.array([0, 2, 4]), np.array([3.0, 5.0]))[:2]
    (array([1, 1]), array([1., 3.]))
    """
    rows = all(type(each) is np.ndarray and each.ndim == 1 for each in (x, new))
    if not rows or len(x) < 2 or not len(new) or not (x[1:] > x[:-1]).all():
        return None
    near, places, points = xarray.coordinates(x, new)
    second = np.searchsorted(near, points).clip(1, len(near) - 1)
    first = second - 1
    outside = (points < near[0]) | (points > near[-1])
    return places[first], points - near[first], near[second] - near[first], outside


def interpolated_for(function: Any) -> Any:
    """Return what programs call for xarray's function as xarray gives it, or `function`.

    Examples
    --------
    >>> from gpusched.graph.interpolation import interpolated_for
    >>> interpolated_for(max) is max
    True
    """
    if type(function) is not partial or function.args:
        return function
    options = function.keywords
    if not xarray.is_interpolation(function.func) or options.keys() != _OPTIONS:
        return function
    how, dims = options["interp_kwargs"], options["result_coord_core_dims"]
    ends = {name: how[name] for name in how if name != "method"}
    plain = ends == {} or ends == {"fill_value": "extrapolate"}
    linear = xarray.is_linear(options["interp_func"]) and how.get("method") == "linear"
    if not linear or not plain or len(dims) != 1 or len(dims[0]) != 1:
        return function
    return Interpolated(bool(ends), function)


_OPTIONS = {"interp_func", "interp_kwargs", "result_coord_core_dims"}
