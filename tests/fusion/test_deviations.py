"""Squares of deviations from a mean are joined slab by slab, so that memory is read once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.fusion.backends import together
from gpusched.fusion.plan import Plan
from tests.fusion.recording import record
from tests.fusion.slabbed import make_small, profiled, put_some, slabs_of

RANDOM = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slabs have few rows, also of small arrays."""
    make_small(monkeypatch)


def columns(x: Any) -> Any:
    total = np.sum(x, axis=0, keepdims=True)
    return total, np.sum((x - total / x.shape[0]) ** 2, axis=0)


def everything(x: Any) -> Any:
    total = np.sum(x)
    return total, np.sum(np.square(x - total / np.full((), x.size)))


def of_chain(x: Any) -> Any:
    y = np.sqrt(np.abs(x)) + 1
    mean = np.sum(y, axis=0) / np.full(x.shape[1:], x.shape[0])
    return mean, np.sum((y - mean) ** 2, axis=0, dtype=x.dtype), np.max(x, axis=1)


FUNCTIONS = [columns, everything, of_chain]


def joined(plan: Plan) -> int:
    """Return how many squares are joined slab by slab."""
    return sum(len(each.joined) for each in slabs_of(plan))


def assert_close(found: Any, expected: Any, dtype: str) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=2e-5 if dtype == "f4" else 1e-12, atol=1e-30)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("layout", ["C", "backwards", "every other"])
def test_results_are_numpy_s(function: Callable[..., Any], dtype: str, layout: str) -> None:
    numbers = RANDOM.normal(3, 2, (1103, 64)).astype(dtype)
    x = {
        "C": numbers,
        "backwards": numbers[::-1, ::-1],
        "every other": np.repeat(numbers, 2, axis=0)[::2],
    }[layout]
    plan = record(function, x).plan
    in_line = function is everything and layout != "every other"
    # Those of float32 are added up while the sum is, unless NumPy's are in float64.
    at_once = function is not everything and dtype == "f4"
    assert joined(plan) == (in_line or function is not everything) - at_once
    assert_close(plan.run((x,))[0], function(x.astype("f8").astype(dtype)), dtype)


@given(
    st.sampled_from(FUNCTIONS),
    st.integers(1, 300),
    st.integers(1, 20),
    st.sampled_from(["f4", "f8"]),
    st.integers(64, 4096),
    st.integers(0, 9999),
    st.data(),
)
def test_any_shape_and_special_values(
    function: Callable[..., Any],
    rows: int,
    width: int,
    dtype: str,
    room: int,
    seed: int,
    data: st.DataObject,
) -> None:
    # Neither sums nor deviations cancel so that they lose digits in float32.
    x = (np.random.default_rng(seed).integers(64, 192, (rows, width)) / 16).astype(dtype)
    put_some(x, (np.nan, np.inf, -np.inf), data)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        make_small(patch, room)
        plan = record(function, x).plan
        found, expected = plan.run((x,))[0], function(x)
    assert_close(found, expected, dtype)


@pytest.mark.parametrize("function", [columns, everything], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_large_mean_costs_no_digits(function: Callable[..., Any], dtype: str) -> None:
    """A trend besides, so that no slab has the mean of all."""
    x = (1e4 + RANDOM.normal(size=(4096, 32)) + np.arange(4096)[:, None] / 100).astype(dtype)
    plan = record(function, x).plan
    axis = 0 if function is columns else None
    exact = np.sum((x.astype("f8") - x.mean(axis=axis, dtype="f8")) ** 2, axis=axis)
    found = plan.run((x,))[0][1]
    np.testing.assert_allclose(found, exact, rtol=1e-5 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize(("function", "shape"), [(columns, (1521, 1000)), (everything, (246_784,))])
def test_what_is_constant_does_not_deviate(
    function: Callable[..., Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slabs of the usual size, the last of them of another."""
    monkeypatch.undo()
    x = np.ones(shape)
    plan = record(function, x).plan
    assert joined(plan) == 1
    np.testing.assert_array_equal(plan.run((x,))[0][1], 0)


def by_another_number(x: Any) -> Any:
    return np.sum((x - np.sum(x, axis=0) / (x.shape[0] - 1)) ** 2, axis=0)


def of_other_values(x: Any) -> Any:
    return np.sum((x + 1 - np.sum(x, axis=0) / x.shape[0]) ** 2, axis=0)


def cubes(x: Any) -> Any:
    return np.sum((x - np.sum(x, axis=0) / x.shape[0]) ** 3, axis=0)


def largest(x: Any) -> Any:
    return np.sum((x - np.max(x, axis=0) / x.shape[0]) ** 2, axis=0)


def with_another_sum(x: Any) -> Any:
    apart = x - np.sum(x, axis=0) / x.shape[0]
    return np.sum(apart**2, axis=0), np.sum(np.abs(apart), axis=0)


def of_rounded_values(x: Any) -> Any:
    total = np.sum(x.astype("f4"), axis=0, dtype="f8")
    return np.sum((x - total / x.shape[0]) ** 2, axis=0)


def of_a_rounded_mean(x: Any) -> Any:
    return np.sum((x - (np.sum(x) / x.size).astype("f4")) ** 2)


def with_the_number_elsewhere(x: Any) -> Any:
    count = np.float64(x.size)
    y = x * count
    return np.sum((y - np.sum(y) / count) ** 2)


@pytest.mark.parametrize(
    "function",
    [
        of_rounded_values,
        of_a_rounded_mean,
        with_the_number_elsewhere,
        by_another_number,
        of_other_values,
        cubes,
        largest,
        with_another_sum,
    ],
    ids=lambda f: f.__name__,
)
def test_what_only_looks_like_it_is_left_alone(function: Callable[..., Any]) -> None:
    x = RANDOM.normal(1, 2, (1103, 64))
    plan = record(function, x).plan
    assert not joined(plan)
    found, expected = plan.run((x,))[0], function(x)
    as_tuples = (y if isinstance(y, tuple) else (y,) for y in (found, expected))
    for one, other in zip(*as_tuples, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def after_its_mean(other: Any, x: Any) -> Any:
    mean = np.sum(x, keepdims=True) / np.full(1, x.size)
    # Not for kernels: what it needs is made at once.
    return other + mean.reshape(1, 1), np.sum((x - mean) ** 2, keepdims=True, dtype=x.dtype)


def of_a_truncated_mean(other: Any, x: Any) -> Any:
    mean = (np.sum(x, keepdims=True) / np.full(1, x.size)).astype("i8")
    squares = np.sum((x - mean.astype(x.dtype)) ** 2, keepdims=True, dtype=x.dtype)
    return other + mean.reshape(1, 1), squares


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "function", [after_its_mean, of_a_truncated_mean], ids=lambda f: f.__name__
)
def test_a_mean_may_be_made_before(function: Callable[..., Any], dtype: str) -> None:
    other, x = np.ones((1, 1)), RANDOM.normal(3.5, 2, 70_000).astype(dtype)
    plan = record(function, other, x).plan
    assert joined(plan) == (function is after_its_mean)
    for one, wanted in zip(plan.run((other, x))[0], function(other, x), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_mean_is_made_beside_what_comes_later(dtype: str) -> None:
    def scaled(x: Any, other: Any) -> Any:
        mean = np.sum(x, axis=0) / np.full(64, 1103)
        largest = np.sqrt(np.max(other, axis=0))
        squares = np.sum((x - mean) ** 2, axis=0, dtype=x.dtype)
        return (x - mean) / np.sqrt(squares) / largest

    x, other = (RANDOM.uniform(1, 2, (rows, 64)).astype(dtype) for rows in (1103, 700))
    plan = record(scaled, x, other).plan
    for _ in range(2):
        (found, _) = plan.run((x, other))
        error = 1e-6 if dtype == "f4" else 1e-14
        np.testing.assert_allclose(found, scaled(x, other), rtol=0, atol=error)


def test_a_divisor_of_the_user_s_is_not_taken_for_the_number_of_rows() -> None:
    def divided(x: Any, count: Any) -> Any:
        return np.sum((x - np.sum(x, axis=0) / count) ** 2, axis=0)

    x, count = RANDOM.normal(1, 2, (1103, 64)), np.full(64, 1103.0)
    plan = record(divided, x, count).plan
    assert not joined(plan)
    np.testing.assert_allclose(plan.run((x, count + 1))[0], divided(x, count + 1), rtol=1e-12)


def test_one_sum_has_one_mean() -> None:
    def twice(x: Any) -> Any:
        squares = (x - np.sum(x, axis=0) / x.shape[0]) ** 2
        return np.sum(squares, axis=0), np.sum(squares.astype("f4"), axis=0)

    x = RANDOM.normal(1, 2, (1103, 64))
    plan = record(twice, x).plan
    assert joined(plan) <= 1
    for one, other in zip(plan.run((x,))[0], twice(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_profiles_time_each_kernel() -> None:
    x = RANDOM.normal(1, 2, (1103, 64))
    plan = record(columns, x).plan
    assert joined(plan) == 1
    result, names = profiled(plan, x)
    assert sorted(names) == sorted(plan.names)
    assert_close(result, columns(x), "f8")


def test_the_loop_s_source_says_what_it_does() -> None:
    plan = record(columns, RANDOM.normal(1, 2, (1103, 64))).plan
    (found,) = slabs_of(plan)
    text = together.source(tuple(map(together.part, found.launches, found.steps)), found.joins)
    compile(text, "slabs", "exec")
    assert all(len(line) < 200 for line in text.splitlines()), text
    order = ["call_0(", "given_1[i] =", "sums_1[i] +=", "call_1(", "change =", "return errors"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_dask_s_deviations(dtype: str, axis: int | None) -> None:
    x = RANDOM.uniform(0, 100, (2000, 120)).astype(dtype)
    chunked = da.from_array(x, chunks=(1000, 120))
    with gpusched.enable(), warnings.catch_warnings():
        warnings.simplefilter("error")
        together_ = gpusched.explain(chunked.std(axis=axis)).stages[0].slabs
        for _ in range(2):
            found = chunked.std(axis=axis).compute(scheduler="sync")
    assert bool(together_) == (dtype != "f4")  # Those are added up while the sum is.
    np.testing.assert_allclose(found, x.std(axis=axis), rtol=1e-5 if dtype == "f4" else 1e-12)
    assert found.dtype == x.std(axis=axis).dtype
