"""A pytest plugin for xarray's own tests: its arrays are those of dask-array."""

from __future__ import annotations


def pytest_configure() -> None:
    from dask_array import xarray

    xarray.register()
