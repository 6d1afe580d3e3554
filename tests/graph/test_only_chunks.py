"""The last steps of means and variances of one chunk: of windows, recorded with the first."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.lib.stride_tricks import sliding_window_view
from hypothesis import given
from hypothesis import strategies as st

import gpusched

RANDOM = np.random.default_rng(7)
ROUNDS = {"f2": 2e-3, "f4": 3e-6}
"""How far results may be from NumPy's, for sums in another order."""


def outcome(program: Any, fused: bool) -> tuple[np.ndarray, set[str]]:
    """Return what a program gives, and the messages of its warnings."""
    switch = gpusched.enable if fused else gpusched.disable
    with switch(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = program.compute(scheduler="sync")
    return found, {str(each.message) for each in caught}


def check(program: Any) -> Any:
    """Assert that a program gives what plain dask gives, and warns as it does."""
    expected, told = outcome(program, fused=False)
    gpusched.reset_statistics()
    for _ in range(2):
        found, messages = outcome(program, fused=True)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(
            found, expected, rtol=ROUNDS.get(found.dtype.str[1:], 1e-13), atol=1e-12
        )
        known = ~np.isnan(expected) & np.isreal(expected)
        np.testing.assert_array_equal(
            np.signbit(found.real[known]), np.signbit(expected.real[known])
        )
        assert messages == told
    return gpusched.statistics()


def numbers(dtype: str, *shape: int) -> np.ndarray:
    return (RANDOM.normal(5, 3, size=shape or (12, 5, 7)) * 3).astype(dtype)


REDUCTIONS = ["mean", "var", "std", "nanmean", "nanvar", "nanstd"]


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?"])
def test_one_task_each(name: str, dtype: str) -> None:
    x = da.from_array(numbers(dtype), chunks=(6, 5, 7))
    for axis in (1, (1, 2)):
        for options in ({}, {"keepdims": True}):
            reduced = getattr(da, name)(x, axis=axis, **options)
            counted = check(reduced * 2)
            assert not counted.breaks
            assert counted.launches
            assert not counted.repeats


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_nan_infinities_and_lanes_of_nothing(name: str, dtype: str) -> None:
    values = numbers(dtype)
    values[0, 0] = np.nan
    values[1, :4, 2] = np.nan
    values[2, 1, 3], values[3, 2, 4], values[3, 3, 4] = np.inf, np.inf, -np.inf
    values[4, :, 1], values[5, :, 2] = 0.0, -0.0
    values[7, :, :2] = np.nan
    x = da.from_array(values, chunks=(6, 5, 7))
    windows = sliding_window_view(x, 3, axis=1, automatic_rechunk=False)
    for ddof in ({"ddof": k} for k in (0, 1, 2, 5)) if "mean" not in name else [{}]:
        check(getattr(da, name)(x, axis=1, **ddof) + 0)
        check(getattr(da, name)(windows, axis=-1, **ddof) + 0)


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_errors_that_are_raised() -> None:
    values = numbers("f8")
    values[0, :, 0] = np.nan
    x = da.from_array(values, chunks=(6, 5, 7))
    for switch in (gpusched.disable, gpusched.enable):
        with np.errstate(invalid="raise"), pytest.raises(FloatingPointError), switch():
            (da.nanvar(x, axis=1) * 2).compute(scheduler="sync")
        with warnings.catch_warnings(), switch():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning):
                (da.nanvar(x, axis=1) * 2).compute(scheduler="sync")


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_several_chunks_and_other_steps_are_as_they_were() -> None:
    values = numbers("f8", 12, 6)
    for chunks in ((12, 3), (4, 6), (1, 6)):
        x = da.from_array(values, chunks=chunks)
        for program in (x.mean(axis=0), x.std(axis=0) * 2, x.var(), x.var(axis=(0, 1), ddof=3),
                        da.nanmean(x, axis=1), x.moment(3, axis=0), x.mean(axis=1, dtype="f4"),
                        x.astype("c16").mean(axis=0), x.astype("f2").mean(axis=0)):  # fmt: skip
            check(program)


LANES = st.lists(
    st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 3e200, 7.0]),
             min_size=3, max_size=3),
    min_size=4, max_size=4,
)  # fmt: skip


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@given(lanes=LANES, name=st.sampled_from(REDUCTIONS), ddof=st.integers(0, 3))
def test_any_lanes(lanes: list[list[float]], name: str, ddof: int) -> None:
    options = {} if name.endswith("mean") else {"ddof": ddof}
    x = da.from_array(np.array(lanes), chunks=(2, 3))
    windows = sliding_window_view(x, 2, axis=1, automatic_rechunk=False)
    program = getattr(da, name)(windows, axis=-1, **options) * 1.0
    expected, _ = outcome(program, fused=False)
    found, _ = outcome(program, fused=True)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("name", ["std", "nanstd", "mean"])
def test_windows_are_one_kernel_with_what_comes_after(name: str) -> None:
    values = numbers("f8", 60, 4)
    values[10:15, 1] = np.nan
    x = da.from_array(values, chunks=(60, 2))
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        windows = sliding_window_view(x, 5, axis=0, automatic_rechunk=False)
        program = da.where(x[4:] > 0, getattr(da, name)(windows, axis=-1), 0)
        explained = gpusched.explain(program)
        assert not {each.code for each in explained.breaks} - {"REDUCTION"}
        last = [each for each in explained.kernels if "where" in each.name]
        assert last
        assert "unfused" not in explained.text() or "moment_agg" not in explained.text()
