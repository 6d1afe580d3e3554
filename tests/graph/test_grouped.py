"""xarray's group-by with flox: a kernel per chunk, and flox's own results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import toolz  # type: ignore[import-untyped]

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
        lambda: groups.median(skipna=False) if name == "median" else groups.std(method="cohorts")
    )
    assert fused == 0
    np.testing.assert_allclose(found, expected, rtol=1e-12)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "mean": lambda g: g.mean(),
    "mean-with-nan": lambda g: g.mean(skipna=False),
    "sum": lambda g: g.sum(),
    "sum-of-three": lambda g: g.sum(min_count=3),
    "sum-with-nan": lambda g: g.sum(skipna=False),
    "max": lambda g: g.max(),
    "min": lambda g: g.min(),
    "min-with-nan": lambda g: g.min(skipna=False),
    "count": lambda g: g.count(),
    "prod": lambda g: g.prod(),
    "prod-of-three": lambda g: g.prod(min_count=3),
    "std": lambda g: g.std(),
    "var-with-nan": lambda g: g.var(skipna=False, ddof=1),
    "var-of-few": lambda g: g.var(ddof=5),
}
"""Of groups that end in one chunk: of some nothing is there, and of some too little."""


def in_one_chunk(dtype: str = "float64", in_order: bool = True) -> Any:
    data = field(dtype, missing=dtype.startswith("f")).isel(x=slice(None, 10)).chunk(time=-1, y=15)
    # flox has another way of computing for labels that are not in order.
    labels = np.arange(DAYS) // 7 if in_order else np.arange(DAYS) * 5 % 57
    return data.assign_coords(week=("time", labels)).groupby("week")


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("name", ["mean", *exhaustive(*(n for n in WHOLE if n != "mean"))])
def test_groups_that_end_in_a_chunk_are_its_kernels(name: str, in_order: bool) -> None:
    groups = in_one_chunk(in_order=in_order)
    expected, found, fused = computed(lambda: WHOLE[name](groups))
    assert fused == 2
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.week, expected.week)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("dtype", ["int16", "uint8", "float32", "bool"])
def test_dtypes_of_groups_that_end_in_a_chunk(dtype: str, name: str) -> None:
    groups = in_one_chunk(dtype)
    with np.errstate(all="ignore"):
        expected, found, fused = computed(lambda: WHOLE[name](groups))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert fused == 2 or (name.endswith("of-three") and dtype != "float32")


@pytest.mark.slow
def test_months_of_a_resampling_are_kernels() -> None:
    data = field().isel(x=slice(None, 20))
    expected, found, fused = computed(lambda: data.resample(time="MS").mean() * 2)
    assert fused >= 4
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    with gpusched.enable():
        found = gpusched.explain(data.resample(time="MS").mean())
    assert found.totals.launches >= 8
    assert not any("_reduce_blockwise" in str(each) for each in found.breaks)


def test_labels_that_are_not_a_row_of_integers_are_flox_s() -> None:
    data = field().isel(x=slice(None, 10)).chunk(time=-1)
    places = xr.DataArray(np.arange(DAYS * 30).reshape(DAYS, 30) % 7, dims=("time", "y"))
    groups = data.assign_coords(place=places).groupby("place")
    expected, found, _ = computed(lambda: groups.sum())
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    other = in_one_chunk("complex64")
    expected, found, fused = computed(lambda: other.sum())
    assert fused == 0
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["std", *exhaustive("max", "sum")])
def test_groups_of_complex_numbers_are_flox_s(name: str) -> None:
    data = field(missing=False).isel(x=slice(None, 10))
    groups = (data + 1j * data[::-1].data).groupby("time.month")
    expected, found, _ = computed(lambda: getattr(groups, name)(method="map-reduce"))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_programs_of_groups_last_from_graph_to_graph() -> None:
    groups = in_one_chunk()
    with xr.set_options(use_numbagg=False), gpusched.enable():
        groups.mean().compute()
        gpusched.reset_statistics()
        groups.mean().compute()
        assert not gpusched.statistics().recorded


def flox_function(funcs: tuple[Any, ...], fills: Any, dtypes: Any, axis: tuple[int, ...],
                  count: int) -> Any:  # fmt: skip
    """Return what flox gives to dask for some reductions of groups `range(count)`."""
    flox_core, flox_dask = pytest.importorskip("flox.core"), pytest.importorskip("flox.dask")
    reduction = partial(flox_core.chunk_reduce, func=funcs, reindex=True, fill_value=fills,
                        dtype=dtypes, user_dtype=None)  # fmt: skip
    return partial(toolz.compose(flox_dask._expand_dims, reduction), axis=axis,
                   expected_groups=pd.RangeIndex(count), engine="flox", sort=True)  # fmt: skip


def test_what_flox_gives_to_dask_is_known() -> None:
    given = flox_function(("nansum", "nanlen"), (0, 0), (np.dtype("f4"), np.int64), (2,), 5)
    found = grouped_for(given)
    assert found == Grouped(("nansum", "nanlen"), (0, 0), (np.dtype("f4"), np.int64), (2,), "flox",
                            True, 5, None)  # fmt: skip
    moments = partial(pytest.importorskip("flox.aggregations").var_chunk, skipna=True)
    variances = flox_function((moments, "nanlen"), ((0, 0, 0), 0), (np.dtype("f8"), np.int64),
                              (2,), 5)  # fmt: skip
    assert grouped_for(variances).reductions == ("nanvar", "nanlen")
    assert grouped_for(partial(given, engine="numpy")) != found
    custom = partial(given.func, axis=(2,), engine="flox", sort=True, expected_groups=None)
    assert grouped_for(custom) is custom


def test_another_process_gets_the_same_function() -> None:
    found = grouped_for(flox_function(("sum",), (0,), (np.dtype("f8"),), (1,), 3))
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert hash(again) == hash(found)
    given = np.arange(8.0).reshape(2, 4), np.array([0, 2, 0, 2])
    (sums,) = again(*given)["intermediates"]
    assert sums.ravel().tolist() == [2, 0, 4, 10, 0, 12]
