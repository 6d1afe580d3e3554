"""xarray's group-by with flox: a kernel per chunk, and flox's own results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.graph.grouped import Grouped, grouped_for
from tests.tiers import exhaustive

xr = pytest.importorskip("xarray")
pytest.importorskip("flox", reason="pip install flox")

DAYS = 400


def field(dtype: str = "float64", missing: bool = True) -> Any:
    """Return numbers by day and place, some of them missing, in chunks of a hundred days."""
    values = np.random.default_rng(0).normal(size=(DAYS, 30, 40)) * 8
    if missing:
        values[::7, 3:9] = np.nan
        values[:200, 0, 0] = np.nan
        values[:, 1, 1] = np.nan
    days = np.datetime64("2001-01-01") + np.arange(DAYS)
    chunks = da.from_array(values.astype(dtype), chunks=(100, 30, 40))
    return xr.DataArray(chunks, dims=("time", "y", "x"), coords={"time": days})


def computed(build: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """Return a result of plain dask, that with fusion, and what the fused run counted."""
    with xr.set_options(use_numbagg=False):
        expected = build().compute()
        with gpusched.enable():
            build().compute()
            before = gpusched.statistics()
            found = build().compute()
            after = gpusched.statistics()
    return expected, found, after.fused_tasks - before.fused_tasks


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda g: g.mean(method="map-reduce"),
    "mean-with-nan": lambda g: g.mean(skipna=False, method="map-reduce"),
    "sum": lambda g: g.sum(method="map-reduce"),
    "max": lambda g: g.max(method="map-reduce"),
    "min-with-nan": lambda g: g.min(skipna=False, method="map-reduce"),
    "count": lambda g: g.count(method="map-reduce"),
    "prod": lambda g: g.prod(method="map-reduce"),
    "std": lambda g: g.std(method="map-reduce"),
    "var-with-nan": lambda g: g.var(skipna=False, ddof=1, method="map-reduce"),
}


MORE = [
    pytest.param(name, marks=pytest.mark.exhaustive)
    for name in REDUCTIONS
    if name not in ("sum", "std")
]


@pytest.mark.parametrize("name", ["sum", "std", *MORE])
def test_reductions_by_month_are_a_kernel_per_chunk(name: str) -> None:
    data = field()
    expected, found, fused = computed(lambda: REDUCTIONS[name](data.groupby("time.month")))
    assert fused >= 4
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int16", *exhaustive("float32", "bool")])
def test_dtypes_are_those_of_flox(dtype: str) -> None:
    data = field(dtype, missing=False)
    expected, found, fused = computed(lambda: data.groupby("time.season").sum())
    assert fused >= 4
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_days_without_a_group_are_left_out() -> None:
    data = field()
    group = xr.DataArray(np.where(np.arange(DAYS) % 3, np.arange(DAYS) % 5, np.nan), dims="time")
    data = data.assign_coords(group=group)
    expected, found, _ = computed(lambda: data.groupby("group").mean())
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["median", "cohorts"])
def test_what_has_no_kernel_is_flox_s(name: str) -> None:
    data = field().chunk(time=-1) if name == "median" else field()
    groups = data.groupby("time.month")
    expected, found, fused = computed(
        groups.median if name == "median" else lambda: groups.std(method="cohorts")
    )
    assert fused == 0
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_flox_gives_to_dask_is_known_again() -> None:
    found = Grouped(("nansum", "nanlen"), (0, 0), (np.dtype("f4"), np.int64), (2,), "flox", True, 5)
    assert grouped_for(found.plain) == found
    with_moments = Grouped(("nanvar", "nanlen"), ((0, 0, 0), 0), (np.dtype("f8"), np.int64), (2,),
                           "flox", True, 5)  # fmt: skip
    assert grouped_for(with_moments.plain) == with_moments
    other = partial(found.plain, engine="numpy")
    assert grouped_for(other) != found
    custom = partial(found.plain.func, axis=(2,), engine="flox", sort=True, expected_groups=None)
    assert grouped_for(custom) is custom


def test_another_process_gets_the_same_function() -> None:
    found = Grouped(("sum",), (0,), (np.dtype("f8"),), (1,), "flox", True, 3)
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert hash(again) == hash(found)
    given = np.arange(8.0).reshape(2, 4), np.array([0, 2, 0, 2])
    (sums,) = again(*given)["intermediates"]
    assert sums.ravel().tolist() == [2, 0, 4, 10, 0, 12]
