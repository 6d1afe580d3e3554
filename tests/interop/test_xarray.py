"""xarray's objects over dask arrays: the same results, fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

Compute = Callable[[Callable[[], Any]], tuple[Any, int]]


def damped(x: Any) -> Any:
    return np.tanh(x) * np.exp(-x * x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: np.sqrt(abs(x)) * 2 + x**2,
    "where": lambda x: x.where(x > 0).fillna(-1.0) * 2,
    "groupby": lambda x: x.groupby("time.month") - x.groupby("time.month").mean(),
    "resample": lambda x: (x * 2 + 1).resample(time="MS").mean(),
    "rolling": lambda x: (x * 2 + 1).rolling(time=5, center=True).mean(),
    "coarsen": lambda x: (x * 2 + 1).coarsen(x=2).max(),
    "apply_ufunc": lambda x: xr.apply_ufunc(
        damped, x, dask="parallelized", output_dtypes=[x.dtype]
    ),
    "map_blocks": lambda x: damped(x) if x.chunks is None else x.map_blocks(damped, template=x),
    "weighted": lambda x: x.weighted(xr.DataArray(np.arange(8.0), dims="y")).mean(("y", "x")),
    "dataset": lambda x: (xr.Dataset({"a": x, "b": x + 1}) * 2 + 1).to_array().sum("variable"),
}


@pytest.fixture(autouse=True)
def _groups_by_xarray_itself() -> Iterator[None]:
    """Leave out flox, whose groups have tests of their own: tests/graph/test_grouped.py."""
    with xr.set_options(use_flox=False):
        yield


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_same_as_on_numpy_arrays(name: str, random: np.random.Generator, launched: Compute) -> None:
    values = random.standard_normal((120, 8, 10))
    coords = {"time": pd.date_range("2000-01-01", periods=120)}
    plain = xr.DataArray(values, dims=("time", "y", "x"), coords=coords, name="t")
    program = PROGRAMS[name]
    chunked = plain.copy(data=da.from_array(values, chunks=(40, 4, 10)))
    lazy = program(chunked)
    assert isinstance(lazy.data, da.Array)
    found, launches = launched(lambda: program(chunked).compute())
    xr.testing.assert_allclose(found, program(plain))
    # xarray's own map_blocks gives its functions xarray objects of real arrays.
    assert bool(launches) == (name != "map_blocks")
