"""Squares of deviations of float32 are added up in the kernel that adds up their mean."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.array.reductions import moment_chunk
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from tests.fusion.recording import BACKENDS, record
from tests.fusion.slabbed import put_some, slabs_of

RANDOM = np.random.default_rng(11)


def of_dask(x: Any, axis: Any = 0) -> Any:
    """Return what dask keeps of a chunk: sums, and squares of deviations."""
    found = moment_chunk(x, dtype="f4", axis=axis, keepdims=True)
    return found["total"], found["M"][..., 0]


def of_numpy(x: Any, axis: Any = 0) -> Any:
    return np.var(x, axis=axis)


def exact(x: np.ndarray, axis: Any) -> np.ndarray:
    """Return the squares that `of_dask` adds up, as exact as float64 has them."""
    wide = x.astype("f8")
    return ((wide - wide.mean(axis=axis, keepdims=True)) ** 2).sum(axis=axis, keepdims=True)


def readers(function: Callable[..., Any], x: np.ndarray) -> list[int]:
    """Return for each kernel that reads all of `x` how many results it has."""
    plan = record(function, x).plan
    return [len(launch.outputs) for launch in plan.launches if 0 in launch.inputs]


@pytest.mark.parametrize("function", [of_dask, of_numpy])
@pytest.mark.parametrize("axis", [0, 1, (0, 1), (1, 2), (0, 1, 2)])
def test_one_kernel_reads_the_chunk_once(function: Callable[..., Any], axis: Any) -> None:
    x = RANDOM.normal(3, 2, (20, 30, 40)).astype("f4")
    assert readers(lambda chunk: function(chunk, axis), x) == [2]
    assert readers(lambda chunk: function(chunk, axis), x.astype("f8")) == [1, 1]


@given(
    st.integers(1, 200),
    st.integers(1, 9),
    st.sampled_from([0, 1, (0, 1)]),
    st.sampled_from([2.0**-100, 2.0**-10, 1.0, 2.0**50]),
    st.sampled_from([0, 1, 1000, 30_000]),
    st.sampled_from(["C", "F", "backwards", "every other", "repeated"]),
    st.sampled_from(sorted(BACKENDS)),
    st.integers(0, 9999),
    st.data(),
)
def test_squares_are_as_exact_as_float32(
    rows: int,
    width: int,
    axis: Any,
    scale: float,
    mean: int,
    layout: str,
    backend: str,
    seed: int,
    data: st.DataObject,
) -> None:
    steps = np.random.default_rng(seed).integers(-32, 32, (rows, width))
    x = ((mean + steps / 16) * scale).astype("f4")
    put_some(x, (np.nan, np.inf, -np.inf, 1e30, -1e30), data)
    x = {
        "C": x,
        "F": np.asfortranarray(x),
        "backwards": x[::-1, ::-1],
        "every other": x.repeat(2, axis=1)[:, ::2],
        "repeated": np.broadcast_to(x[:1], x.shape),
    }[layout]
    with np.errstate(all="ignore"):
        recorded = record(lambda chunk: of_dask(chunk, axis), x, backend=backend)
        again = recorded.plan.run((x,))[0]
        total, squares = x.sum(axis=axis, dtype="f8", keepdims=True), exact(x, axis)
        # Up to 1e30**2 overflows float32, as in NumPy's own.
        squares = squares.astype("f4")
    for found in (recorded.result, again):
        size = np.abs(x, where=np.isfinite(x), out=np.zeros_like(x)).sum(dtype="f8")
        np.testing.assert_allclose(found[0], total.astype("f4"), rtol=1e-6, atol=1e-12 * size)
        np.testing.assert_allclose(found[1], squares, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("number", [0.1, -1e-3, 123456.789, 3e38])
def test_what_is_constant_does_not_deviate(axis: int | None, number: float) -> None:
    x = np.full((1521, 1000), number, "f4")
    _, squares = record(of_dask, x).plan.run((x,))[0]
    assert np.array_equal(squares, np.zeros((1, 1000)))


@pytest.mark.parametrize("axis", [0, 1])
def test_neither_a_large_mean_nor_a_first_number_unlike_the_others_costs_digits(axis: int) -> None:
    x = (1e5 + RANDOM.normal(size=(3000, 3000))).astype("f4")
    x[:1] = x[:, :1] = -1e8
    _, squares = record(lambda chunk: of_dask(chunk, axis), x).result
    np.testing.assert_allclose(squares, exact(x, axis), rtol=1e-6)


@pytest.mark.parametrize("rows", [1 << 18, (1 << 18) + 1, 1 << 21])
def test_an_outlier_in_front_of_long_columns_costs_no_more_digits_than_in_numpy(rows: int) -> None:
    x = RANDOM.integers(0, 2, (rows, 2)).astype("f4")
    x[0] = 7.123457e5, 1e18
    (_, squares), (_, plain) = record(of_dask, x, backend="cpu").result, of_dask(x)
    error, allowed = (np.abs(each / exact(x, 0) - 1).max() for each in (squares, plain))
    assert error <= max(2e-6, 2 * allowed)


def test_what_is_computed_first_is_computed_once() -> None:
    def of_exponentials(x: Any) -> Any:
        return of_dask(np.exp(x) + 1)

    x = RANDOM.normal(size=(300, 200)).astype("f4")
    recorded = record(of_exponentials, x)
    exponentials = [s for launch in recorded.launches for s in launch.kernel.kernel.statements
                    if s.operation == "exp"]  # fmt: skip
    first, whole = recorded.launches[:2]
    assert first.outputs[0].result_shape == (1, 200)
    assert len(whole.outputs) == len(exponentials) == 2
    y = (np.exp(x.astype("f8")) + 1).astype("f4")
    np.testing.assert_allclose(recorded.result[1], exact(y, 0), rtol=1e-5)


def test_other_reductions_are_beside_it() -> None:
    def all_of(x: Any) -> Any:
        return (*of_dask(x), np.max(x, axis=0, keepdims=True), x - np.mean(x, axis=0))

    x = RANDOM.normal(size=(300, 200)).astype("f4")
    # dask stacks squares at once, so that other sums come later.
    assert readers(all_of, x) == [2, 2, 1]
    assert readers(lambda x: (np.var(x, axis=0, keepdims=True), np.max(x, axis=0)), x) == [3]
    found, expected = record(all_of, x).result, all_of(x)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def test_rows_and_columns_share_slabs() -> None:
    def both(x: Any) -> Any:
        return *of_dask(x, 0), *of_dask(x, 1)

    x = RANDOM.normal(size=(2000, 1500)).astype("f4")
    plan = record(both, x).plan
    (together,) = slabs_of(plan)
    assert len(together.launches) == 2
    for one, other in zip(plan.run((x,))[0][1::2], (exact(x, 0), exact(x, 1)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_types_and_shapes_are_numpy_s(axis: int | None) -> None:
    x = RANDOM.normal(size=(30, 20)).astype("f4")
    for function in (np.var, np.std):
        found = record(lambda chunk, f=function: f(chunk, axis=axis), x).result
        expected = function(x, axis=axis)
        assert (type(found), found.dtype, found.shape) == (
            type(expected), expected.dtype, expected.shape,
        )  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_warnings_come_once() -> None:
    x = np.zeros((3, 4), "f4")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record(lambda chunk: np.var(1 / chunk, axis=0), x)
    messages = [str(each.message) for each in caught]
    assert sum("divide by zero" in message for message in messages) <= 1


@pytest.mark.parametrize("axis", [0, 1, None])
def test_dask_s_deviations(axis: int | None) -> None:
    x = (300 + RANDOM.normal(size=(2000, 120))).astype("f4")
    chunked = da.from_array(x, chunks=(700, 60))
    with gpusched.enable(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            mean, std = da.compute(chunked.mean(axis), chunked.std(axis), scheduler="sync")
    np.testing.assert_allclose(mean, x.mean(axis, dtype="f8"), rtol=1e-6)
    np.testing.assert_allclose(std, x.std(axis, dtype="f8"), rtol=1e-5)
    assert std.dtype == x.std(axis).dtype
