"""Private functions of xarray, which it puts into the tasks of its programs.

xarray has no public names for them. Nothing here imports xarray: what has not been imported has
put nothing into a graph.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


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


def _is(function: Any, module: str, name: str) -> bool:
    found = getattr(sys.modules.get(module), name, None)
    # What somebody has put in its place is of another module.
    return found is function is not None and function.__module__ == module
