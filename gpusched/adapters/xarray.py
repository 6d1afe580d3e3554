"""Private functions of xarray, which it puts into the tasks of its programs.

xarray has no public names for them. Nothing here imports xarray: what has not been imported has
put nothing into a graph.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.array.core import finalize
from dask.base import is_dask_collection

from gpusched.adapters.tasks import is_list


def is_nanpolyfit(function: Any) -> bool:
    """Return whether a function is the one that fits a polynomial to one lane, but for its NaN."""
    return _is(function, "xarray.core.nputils", "_nanpolyfit_1d")


def is_interpolation(function: Any) -> bool:
    """Return whether a function is the one that interpolates chunks."""
    return _is(function, "xarray.core.missing", "_interpnd")


def is_linear(interpolator: Any) -> bool:
    """Return whether it is given, for straight lines between neighbours, this interpolator."""
    return _is(interpolator, "xarray.core.missing", "ScipyInterpolator")


def coordinates(x: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return coordinates as the interpolator is given them, their places, and the points.

    xarray leaves those out that are far from all points, and makes numbers of dates.
    """
    from xarray.core import missing

    def interpolator(xi: Any, yi: Any, **_: Any) -> Any:
        return lambda points: (np.asarray(xi), np.asarray(yi), np.asarray(points))

    return missing._interpnd(  # type: ignore[return-value]
        np.arange(len(x)), x, new, interp_func=interpolator, interp_kwargs={"method": "linear"},
        result_coord_core_dims=[("new",)],
    )  # fmt: skip


def nested_chunks(function: Any, args: Sequence[Any]) -> Sequence[Any] | None:
    """Return what is given to a function that makes an object of chunks, array by array.

    Parameters
    ----------
    function
        Of a task: what an object's `__dask_postcompute__` returns.
    args
        What the task gives it.

    Returns
    -------
    sequence or None
        The nested lists of chunks, one for each array; None for any other function, and where an
        array's chunks are not joined by dask's `finalize`.
    """
    method = getattr(function, "__func__", None)
    if method is None:
        return None
    if _is(method, "xarray.core.dataarray", "DataArray._dask_finalize") and len(args) == 3:
        # It is given its name, and the function of the dataset that is made first.
        return nested_chunks(args[2], args[:1])
    if _is(method, "xarray.core.variable", "Variable._dask_finalize"):
        return args[:1] if args[1:] == (finalize,) else None
    if not _is(method, "xarray.core.dataset", "Dataset._dask_postcompute") or len(args) != 1:
        return None
    lazy = [each for each in function.__self__.variables.values() if is_dask_collection(each)]
    if any(each.__dask_postcompute__()[1] != (finalize,) for each in lazy) or not is_list(args[0]):
        return None
    found: Sequence[Any] = args[0].args
    return found


def _is(function: Any, module: str, name: str) -> bool:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    found = getattr(found, "__func__", found)
    # What somebody has put in its place is of another module.
    return found is function is not None and function.__module__ == module
