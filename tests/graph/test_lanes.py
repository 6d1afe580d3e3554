"""Least squares of all columns at once, and those that are left to xarray's own function."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.adapters.arrays import apply_along_axis
from gpusched.graph.functions import lanes

xr = pytest.importorskip("xarray")
nputils = pytest.importorskip("xarray.core.nputils")

RANDOM = np.random.default_rng(5)


def fitted(values: np.ndarray, x: np.ndarray) -> tuple[Any, int]:
    """Return what is fitted at once, and how many columns were left to the function itself."""
    left = []

    def one(column: np.ndarray, x: np.ndarray, rcond: Any = None) -> np.ndarray:
        left.append(column)
        return nputils._nanpolyfit_1d(column, x, rcond)

    return lanes.least_squares(one, values, x), len(left)


PECULIAR: dict[str, Any] = {
    "missing": np.nan,
    "infinite": -np.inf,
    "large": 1e200,
    "small": 0.0,
}


@given(st.data())
def test_each_column_is_fitted_as_xarray_fits_it(data: st.DataObject) -> None:
    rows, count = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 4))
    x = np.vander(np.linspace(data.draw(st.sampled_from([-1.0, 0.0, 20.0])), 30, rows), count)
    x /= np.sqrt((x**2).sum(axis=0))
    order: Any = data.draw(st.sampled_from("CF"))
    values = np.array(RANDOM.normal(280, 10, (rows, 7)), order=order)
    for name in data.draw(st.lists(st.sampled_from(list(PECULIAR)), max_size=3)):
        column = data.draw(st.integers(0, 6))
        some = slice(None) if name == "small" else slice(0, data.draw(st.integers(1, rows)))
        values[some, column] = PECULIAR[name]
    dtype = data.draw(st.sampled_from(["f8", "f8", "f4"]))
    with np.errstate(over="ignore"):
        values = values.astype(dtype)
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        found, left = fitted(values, x)
        try:
            expected = np.apply_along_axis(nputils._nanpolyfit_1d, 0, values, x)
        except np.linalg.LinAlgError:
            return  # Both raise it, where they get to such a column.
    if found is None:
        return
    peak = np.abs(values.astype("f8")).max(axis=0)
    assert left == values.shape[1] - ((peak > 0) & (peak < 1e100)).sum()
    assert found.shape == expected.shape
    assert found.strides == expected.strides
    size = np.linalg.cond(x) * 300 * rows
    np.testing.assert_allclose(found[:-1], expected[:-1], rtol=1e-9, atol=1e-14 * size)
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-9, atol=1e-14 * 300**2 * rows)


@pytest.mark.parametrize(
    "x",
    [np.ones((30, 2)), np.vander(np.linspace(0.9, 1, 30), 8), np.ones((2, 2)),
     np.full((30, 1), np.nan), np.ones((30, 1), "c16"), np.ones(30)],
    ids=["rank", "condition", "square", "nan", "complex", "row"],
)  # fmt: skip
def test_other_columns_are_left_to_the_function(x: np.ndarray) -> None:
    assert fitted(RANDOM.normal(size=(len(x), 4)), x)[0] is None


def test_a_deficient_rank_is_warned_of_as_by_xarray() -> None:
    values = RANDOM.normal(size=(30, 4))
    with pytest.warns(nputils.RankWarning):
        lanes.each_along(nputils._nanpolyfit_1d, 0, values, np.ones((30, 2)), rcond=None)


def test_other_functions_see_each_lane() -> None:
    values = RANDOM.normal(size=(5, 4))
    found = lanes.each_along(np.sort, 0, values)
    np.testing.assert_array_equal(found, apply_along_axis(values, np.sort, 0, (), {}))


def test_what_somebody_else_has_put_there_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(column: Any, x: Any, rcond: Any = None) -> Any:
        return np.zeros(3)

    monkeypatch.setattr(nputils, "_nanpolyfit_1d", other)
    values, x = RANDOM.normal(size=(30, 4)), np.vander(np.arange(30.0), 2)
    assert not lanes.each_along(other, 0, values, x, rcond=None).any()


def test_polynomials_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = RANDOM.normal(size=(60, 6, 5))
    values[3, 0, 1], values[:, 2, 2] = np.nan, np.nan
    chunks = da.from_array(values, chunks=(20, 3, 5))
    x = xr.DataArray(chunks, dims=("time", "y", "x"), coords={"time": np.arange(60.0)})
    called: list[Any] = []
    plain = np.linalg.lstsq
    monkeypatch.setattr(np.linalg, "lstsq", lambda *a, **k: called.append(a) or plain(*a, **k))
    expected = x.polyfit("time", 2).compute()
    assert len(called) == 29
    called.clear()
    with gpusched.enable():
        found = x.polyfit("time", 2).compute()
    assert len(called) == 1  # of what has a gap
    xr.testing.assert_allclose(found, expected, rtol=1e-10)
