"""xarray over the arrays of dask-array, as its chunk manager gives them: fused as dask.array's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from xarray.namedarray.parallelcompat import list_chunkmanagers

import gpusched
from tests.tiers import every


def damped(x: Any) -> Any:
    return np.tanh(x) * np.exp(-x * x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: np.sqrt(abs(x)) * 2 + x**2,
    "where": lambda x: x.where(x > 0).fillna(-1.0) * 2,
    "coarsen": lambda x: (x * 2 + 1).coarsen(x=2).max(),
    "mean": lambda x: (x * 2 + 1).mean("time"),
    "std": lambda x: np.exp(x).std("y"),
    "weighted": lambda x: x.weighted(xr.DataArray(np.arange(8.0), dims="y")).mean(("y", "x")),
    "apply_ufunc": lambda x: xr.apply_ufunc(
        damped, x, dask="parallelized", output_dtypes=[x.dtype]
    ),
    "isel": lambda x: (x * 2 + 1).isel(time=slice(10, 90), y=slice(1, 7)) - 1,
}
"""Programs whose kernels are those of dask.array's graph."""

REARRANGED: dict[str, Callable[[Any], Any]] = {
    "groupby": lambda x: x.groupby("time.month") - x.groupby("time.month").mean(),
    "resample": lambda x: (x * 2 + 1).resample(time="MS").mean(),
    "rolling": lambda x: (x * 2 + 1).rolling(time=5, center=True).mean(),
    "dataset": lambda x: (xr.Dataset({"a": x, "b": x + 1}) * 2 + 1).to_array().sum("variable"),
}
"""Programs that dask-array makes another graph of: fewer tasks, or other ones."""


@pytest.fixture
def plain() -> xr.DataArray:
    values = np.random.default_rng(0).standard_normal((120, 8, 10))
    coords = {"time": pd.date_range("2000-01-01", periods=120)}
    return xr.DataArray(values, dims=("time", "y", "x"), coords=coords, name="t")


@pytest.fixture(autouse=True)
def _small_chunks_too() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0, "scheduler": "threads"}):
        yield
    gpusched.reset_statistics()


@pytest.fixture(autouse=True)
def _groups_by_xarray_itself() -> Iterator[None]:
    """Leave out flox, which does not know dask-array's arrays."""
    with xr.set_options(use_flox=False):
        yield


@pytest.fixture
def registered() -> Iterator[Callable[[], None]]:
    """Give what makes dask-array xarray's chunk manager for the rest of the test."""
    package = pytest.importorskip("dask_array.xarray")
    managers = list_chunkmanagers()
    before = dict(managers)
    yield package.register
    managers.clear()
    managers.update(before)


def fused(program: Callable[[], Any]) -> tuple[Any, Any]:
    gpusched.reset_statistics()
    with gpusched.enable():
        found = program()
    return found, gpusched.statistics()


def chunked(plain: xr.DataArray) -> xr.DataArray:
    return plain.chunk(time=40, y=4, x=10, chunked_array_type="dask")


@pytest.mark.parametrize("name", every(3, PROGRAMS))
def test_same_kernels_as_with_dask_array(
    name: str, plain: xr.DataArray, registered: Callable[[], None]
) -> None:
    program = PROGRAMS[name]
    _, expected = fused(lambda: program(chunked(plain)).compute())
    registered()
    lazy = program(chunked(plain))
    assert type(lazy.data).__module__.startswith("dask_array")
    found, counts = fused(lambda: program(chunked(plain)).compute())
    xr.testing.assert_allclose(found, program(plain))
    assert counts.kernels == expected.kernels
    assert counts.fused_tasks == expected.fused_tasks > 0


@pytest.mark.parametrize("name", list(REARRANGED))
def test_graphs_of_its_own_are_fused(
    name: str, plain: xr.DataArray, registered: Callable[[], None]
) -> None:
    registered()
    found, counts = fused(lambda: REARRANGED[name](chunked(plain)).compute())
    xr.testing.assert_allclose(found, REARRANGED[name](plain))
    assert counts.fused_tasks > 0


@pytest.mark.parametrize("package", [False, True])
def test_datasets_are_fused_however_they_are_computed(
    package: bool, plain: xr.DataArray, registered: Callable[[], None], tmp_path: Path
) -> None:
    if package:
        registered()
    ds = xr.Dataset({"a": chunked(plain) * 2 + 1, "b": abs(chunked(plain)) - 1})
    expected = xr.Dataset({"a": plain * 2 + 1, "b": abs(plain) - 1})

    def written() -> Any:
        ds.to_zarr(tmp_path / "ds.zarr", consolidated=False)
        return xr.open_zarr(tmp_path / "ds.zarr", consolidated=False).load()

    ways: dict[str, Callable[[], Any]] = {
        "compute": ds.compute,
        "load": ds.copy().load,
        "persist": lambda: ds.persist().compute(),
        "dask.compute": lambda: dask.compute(ds)[0],
        "dask.persist": lambda: dask.persist(ds)[0].compute(),
        "to_zarr": written,
    }
    for name, way in ways.items():
        found, counts = fused(way)
        xr.testing.assert_allclose(found, expected)
        assert (name, counts.launches, len(counts.kernels)) == (name, 12, 2)
