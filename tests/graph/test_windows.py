"""Rolling reductions of xarray and dask: a kernel for each large chunk, and NumPy's values."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import gpusched

VALUES = np.random.default_rng(0).integers(0, 99, (200, 40, 50)).astype("f8")


def fused(array: Any) -> tuple[Any, int]:
    """Return an array's values, and how many kernels computed them."""
    with gpusched.enable():
        before = gpusched.statistics().launches
        return array.compute(scheduler="sync"), gpusched.statistics().launches - before


@pytest.mark.parametrize("name", ["sum", "max"])
def test_windows_of_a_dask_array_are_a_kernel_for_each_chunk(name: str) -> None:
    x = da.from_array(VALUES, chunks=(50, 40, 50))
    windows = da.lib.stride_tricks.sliding_window_view(x, 5, axis=0, automatic_rechunk=False)
    with dask.config.set({"gpusched.fusion.single-operation-bytes": 1 << 20}):
        found, kernels = fused(getattr(windows, name)(axis=-1))
    np.testing.assert_array_equal(found, getattr(sliding_window_view(VALUES, 5, 0), name)(axis=-1))
    assert kernels == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum", "mean", "max", "std"])
def test_rolling_reductions_of_xarray(name: str) -> None:
    xr = pytest.importorskip("xarray")
    x = xr.DataArray(da.from_array(VALUES, chunks=(50, 40, 50)), dims=("time", "y", "x"))
    with xr.set_options(use_bottleneck=False, use_numbagg=False):
        rolled = getattr(x.rolling(time=5), name)().data
    expected = rolled.compute(scheduler="sync")
    found, kernels = fused(rolled)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert kernels >= 4
