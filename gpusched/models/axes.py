"""Which axes of arrays number the rows, and which belong to one row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def is_xarray(value: Any) -> bool:
    """Return whether a value is an `xarray.DataArray`, without importing xarray."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.DataArray)


def rows_and_core(array: Any, core: Any) -> tuple[Any, int]:
    """Return an array whose last axes are those of a row, and how many they are.

    Raises `ValueError` if the array has no such axes.

    Parameters
    ----------
    array
        An array, or an xarray one.
    core
        How many axes at the end belong to a row, or, for xarray, their names; None for all but
        the first.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.models.axes import rows_and_core
    >>> rows_and_core(np.ones((4, 3, 2)), None)[1], rows_and_core(np.ones((4, 3, 2)), 1)[1]
    (2, 1)
    """
    if array.ndim == 0:
        raise ValueError("an array without axes has no rows: give it one, as with x[None]")
    if core is None:
        return array, array.ndim - 1
    if isinstance(core, int) and not isinstance(core, bool):
        if not 0 <= core < array.ndim:
            raise ValueError(
                f"core={core}: an array of {array.ndim} axes has rows of 0 to {array.ndim - 1}"
            )
        return array, core
    names = [core] if isinstance(core, str) else list(core)
    if not is_xarray(array):
        raise ValueError(f"core={core!r} names dimensions, which only xarray's arrays have")
    missing = [name for name in names if name not in array.dims]
    if missing or len(names) >= array.ndim:
        raise ValueError(f"core={core!r}: the array has the dimensions {array.dims}")
    return array.transpose(..., *names), len(names)


def data_of(array: Any) -> Any:
    """Return the array inside an xarray one, or the array."""
    return array.data if is_xarray(array) else array


def check_core_chunks(array: Any, core: int) -> None:
    """Raise `ValueError` for a dask array whose rows are spread over several chunks."""
    first = array.ndim - core
    split = [axis for axis in range(first, array.ndim) if array.numblocks[axis] > 1]
    if split:
        sizes = ", ".join(f"{axis}: -1" for axis in split)
        raise ValueError(
            f"axes {split} belong to a row and have several chunks, {array.chunks}: a row must be "
            f"in one, as after x.rechunk({{{sizes}}})"
        )
    if any(np.isnan(array.shape[first:])):
        raise ValueError("the size of a row is not known: call compute_chunk_sizes() first")


def restorer(array: Any, loops: int, dims: Any) -> Callable[[Any], Any]:
    """Return what makes results like the array that the rows came from.

    Parameters
    ----------
    array
        The first array, its last axes those of a row.
    loops
        Number of axes that number the rows.
    dims
        Names of the axes of one row's result, for xarray; None for ``dim_1`` and so on.
    """
    if not is_xarray(array):
        if dims is not None:
            raise ValueError(f"dims={dims!r} names dimensions, which only xarray's arrays have")
        return lambda result: result
    kept = array.dims[:loops]
    coordinates = {
        name: value for name, value in array.coords.items() if set(value.dims) <= set(kept)
    }

    def restore(result: Any) -> Any:
        import xarray as xr

        extra = result.ndim - loops
        given = [dims] if isinstance(dims, str) else dims
        names = given or [f"dim_{loops + k}" for k in range(extra)]
        if len(names) != extra:
            raise ValueError(f"dims={dims!r}: one row's result has {extra} axes")
        return xr.DataArray(result, coordinates, (*kept, *names), name=array.name)

    return restore
