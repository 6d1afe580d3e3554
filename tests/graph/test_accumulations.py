"""Sums and products of all before, of chunks with long rows: NumPy's bits, and its warnings."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.graph.functions import accumulations
from gpusched.graph.functions.accumulations import BY_ROWS, LONG

DTYPES = ["f2", "f4", "f8", "c8", "c16", "i2", "i8", "?", ">f8"]
SHAPES = [((5, LONG), 0), ((2, 3, LONG), 1), ((3, 4, 30, 80), 1), ((1, LONG), 0), ((0, LONG), 0),
          ((5, LONG), 1), ((LONG, 5), 0), ((2, 0, LONG), 0)]  # fmt: skip


def _numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers of which some are zeros with a sign, infinite, or not a number."""
    drawn = np.random.default_rng(0).normal(size=shape) * 4
    for k, special in enumerate((-0.0, np.nan, np.inf)):
        drawn[..., k::97] = special
    with np.errstate(invalid="ignore"):
        return drawn.astype(dtype)


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return the shapes of what is joined row after row."""
    shapes: list[tuple[int, ...]] = []
    join = accumulations._join_rows

    def noting(ufunc: np.ufunc, given: np.ndarray, *others: Any) -> None:
        shapes.append(given.shape)
        join(ufunc, given, *others)

    monkeypatch.setattr(accumulations, "_join_rows", noting)
    return shapes


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("plain", BY_ROWS)
def test_results_have_numpy_s_bits(
    plain: Any, shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    given = _numbers(shape, dtype)
    with np.errstate(all="ignore"):
        expected = plain(given, axis=axis)
        found = BY_ROWS[plain](given, axis=axis)
    assert found.dtype == expected.dtype
    assert found.strides == expected.strides
    assert found.tobytes() == expected.tobytes()
    assert given.tobytes() == _numbers(shape, dtype).tobytes()


def test_what_has_long_rows_is_joined_row_after_row(by_rows: list[tuple[int, ...]]) -> None:
    given = np.ones((2, 3, 4, LONG // 4))
    for axis in range(given.ndim):
        accumulations.cumsum(given, axis=axis)
    assert by_rows == [(1, 2, 3 * LONG), (2, 3, LONG)]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (np.ones((3, LONG)), {"axis": None}),
        (np.ones((3, LONG)), {"axis": -2}),
        (np.ones((3, LONG)), {"axis": 0, "dtype": "f4"}),
        (np.ones((3, LONG), order="F"), {"axis": 0}),
        (np.ones((3, 2 * LONG))[:, ::2], {"axis": 0}),
        (np.ma.masked_greater(np.arange(3.0 * LONG).reshape(3, LONG), 4), {"axis": 0}),
    ],
)
def test_other_arrays_are_numpy_s(
    by_rows: list[tuple[int, ...]], given: Any, options: dict[str, Any]
) -> None:
    found, expected = accumulations.cumsum(given, **options), np.cumsum(given, **options)
    assert type(found) is type(expected)
    assert found.strides == expected.strides
    assert np.ma.allequal(found, expected)
    assert not by_rows


def test_an_error_of_an_axis_is_numpy_s() -> None:
    with pytest.raises(np.exceptions.AxisError):
        accumulations.cumsum(np.ones((3, LONG)), axis=2)


def test_numpy_warns_once_and_in_its_own_words() -> None:
    given = np.full((4, LONG), 1e308)
    with pytest.warns(RuntimeWarning, match="overflow encountered in accumulate") as found:
        accumulations.cumsum(given, axis=0)
    assert len(found) == 1
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="accumulate"):
        accumulations.cumsum(given, axis=0)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(accumulations.cumsum(given, axis=0)).any()


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
@pytest.mark.parametrize("method", ["sequential", "blelloch"])
def test_dask_s_scans_are_those_of_numpy(name: str, method: str) -> None:
    given = np.random.default_rng(1).uniform(0.9, 1.1, (40, 50, 60))
    array = da.from_array(given, chunks=(15, 25, 60))
    scanned = [getattr(da, name)(each, axis, method=method) for each in (array, array - 0.5)
               for axis in (0, 1, 2)]  # fmt: skip
    with dask.config.set(array_optimize=None):
        expected = dask.compute(*scanned, scheduler="sync")
    for ours, plain in zip(dask.compute(*scanned, scheduler="sync"), expected, strict=True):
        assert np.array_equal(ours, plain)
