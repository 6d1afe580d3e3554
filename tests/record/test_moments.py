"""Variances: one reading, no digits lost to a large mean, and exactly 0 of what is constant."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.array import chunk, reductions
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.graph.functions.moments import moment_agg, moment_chunk, moment_combine
from gpusched.record.moments import Moments, joined, moments
from tests.plan.tiled import put_some, tiles_of
from tests.record.recording import BACKENDS, record
from tests.tiers import exhaustive

RANDOM = np.random.default_rng(11)

ERROR = {"f4": 1e-6, "f8": 1e-13}
"""Largest relative error of a variance, however large the mean is."""


def of_dask(x: Any, axis: Any = (0,)) -> Any:
    """Return what dask keeps of a chunk: sums, and squares of deviations."""
    dtype = x.dtype if x.dtype.kind == "f" else "f8"
    found = moment_chunk(x, dtype=dtype, axis=axis, keepdims=True)
    return found["total"], found["M"][..., 0]


def squares_of_dask(x: Any, axis: Any = (0,)) -> Any:
    """Return what dask's variances need of that: nobody asks for the sums."""
    return of_dask(x, axis)[1]


def of_numpy(x: Any, axis: Any = 0) -> Any:
    return np.var(x, axis=axis)


def exact(x: np.ndarray) -> Fraction:
    """Return the variance of numbers."""
    numbers = [Fraction(float(each)) for each in x.ravel()]
    mean = sum(numbers) / len(numbers)
    return sum((each - mean) ** 2 for each in numbers) / len(numbers)


def error(found: Any, expected: list[Fraction]) -> float:
    """Return the largest relative error of variances."""
    pairs = zip(np.ravel(found), expected, strict=True)
    return max(float(abs(Fraction(float(one)) / other - 1)) for one, other in pairs)


FAR = {
    "first": lambda rows: np.where(rows == 0, 1e7, 0.0),
    "first eight": lambda rows: np.where(rows < 8, -1e7, 0.0),
    "trend": lambda rows: 1e5 * rows,
    "steps": lambda rows: 1e7 * (rows // 100 % 2),
    "last": lambda rows: np.where(rows == rows.max(), 1e7, 0.0),
}
"""Where values are, by their row: far from the means of those before."""


@pytest.mark.parametrize("shape", [(601, 3), (40, 15, 3), (1000, 5, 2)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("far", FAR)
def test_values_far_from_those_before_cost_no_digits(
    far: str, dtype: str, shape: tuple[int, ...]
) -> None:
    """Deviations are from the mean of earlier rows, which later ones may be nowhere near."""
    rows = np.arange(np.prod(shape[:-1]))[:, None]
    flat = (FAR[far](rows) + RANDOM.normal(size=(rows.size, shape[-1]))).astype(dtype)
    axes = tuple(range(len(shape) - 1))
    found = record(lambda chunk: np.var(chunk, axis=axes), flat.reshape(shape)).result
    assert error(found, [exact(column) for column in flat.T]) <= ERROR[dtype]


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("offset", [0, 1, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12])
def test_a_large_mean_costs_no_digits(offset: float, dtype: str, axis: int | None) -> None:
    x = (offset + RANDOM.normal(size=(601, 3))).astype(dtype)
    if axis == 1:
        x = np.ascontiguousarray(x.T)
    rows = [x] if axis is None else list(np.moveaxis(x, axis, 1))
    expected = [exact(row) for row in rows]
    if not all(expected):
        pytest.skip("float32 has no digits for such deviations")
    chunked = da.from_array(x, chunks=tuple(-(-n // 3) for n in x.shape))
    found = [record(lambda chunk: np.var(chunk, axis=axis), x).result]
    with gpusched.enable():
        found.append(chunked.var(axis=axis).compute(scheduler="sync"))
    missing = np.where(np.zeros(x.shape, bool), np.nan, x)
    with gpusched.enable():
        nan = da.nanvar(da.from_array(missing, chunks=chunked.chunks), axis=axis)
        found.append(nan.compute(scheduler="sync"))
    for each in found[:2]:
        assert error(each, expected) <= ERROR[dtype]
    # Where NaN is skipped, float32 is computed in float32.
    assert error(found[2], expected) <= 2 * ERROR[dtype]


@pytest.mark.parametrize("function", [squares_of_dask, *exhaustive(of_numpy)])
@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("dtype", ["f4", *exhaustive("f8", "i4")])
def test_one_kernel_reads_the_chunk_once(
    function: Callable[..., Any], axis: Any, dtype: str
) -> None:
    x = RANDOM.normal(1000, 200, (20, 30, 40)).astype(dtype)
    recorded = record(lambda chunk: function(chunk, axis), x)
    readers = [len(launch.outputs) for launch in recorded.launches if 0 in launch.inputs]
    assert readers == [3]
    of_chunks = function is squares_of_dask
    expected = np.var(x.astype("f8"), axis=axis, keepdims=of_chunks)
    if of_chunks:
        expected = expected * (x.size / expected.size)
    np.testing.assert_allclose(recorded.result, expected, rtol=1e-6 if dtype == "f4" else 1e-12)


@pytest.mark.slow
@given(
    st.integers(1, 200),
    st.integers(1, 9),
    st.sampled_from([(0,), (1,), (0, 1)]),
    st.sampled_from(["f4", "f8"]),
    st.sampled_from([2.0**-100, 2.0**-10, 1.0, 2.0**50]),
    st.sampled_from([0, 1, 1000, 30_000]),
    st.sampled_from(["C", "F", "backwards", "every other", "repeated"]),
    st.sampled_from(sorted(BACKENDS)),
    st.integers(0, 9999),
    st.data(),
)
def test_squares_are_exact_of_any_layout(
    rows: int,
    width: int,
    axis: Any,
    dtype: str,
    scale: float,
    mean: int,
    layout: str,
    backend: str,
    seed: int,
    data: st.DataObject,
) -> None:
    steps = np.random.default_rng(seed).integers(-32, 32, (rows, width))
    x = ((mean + steps / 16) * scale).astype(dtype)
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
        again = recorded.run(x)
        wide = x.astype("f8")
        total = wide.sum(axis=axis, keepdims=True)
        squares = ((wide - wide.mean(axis=axis, keepdims=True)) ** 2).sum(axis=axis, keepdims=True)
    for one, other in zip(recorded.result, again, strict=True):
        np.testing.assert_array_equal(one, other)
    size = np.abs(wide, where=np.isfinite(wide), out=np.zeros_like(wide)).sum()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(again[0], total.astype(dtype), rtol=1e-6, atol=1e-6 * size)
    np.testing.assert_allclose(again[1], squares, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("first", [960, 1040])
def test_one_value_far_from_the_others_costs_no_digits(first: float, skip: bool) -> None:
    x = RANDOM.normal(1000, 0.1, 1 << 19).astype("f4")
    x[0] = first
    add, numel = (chunk.nansum, reductions.nannumel) if skip else (chunk.sum, reductions.numel)
    wide = x - np.float64(1000)

    def squares(x: Any) -> Any:
        found = moment_chunk(x, sum=add, numel=numel, dtype="f4", axis=(0,), keepdims=True)
        return found["M"][0, 0]

    expected = np.square(wide - wide.mean()).sum()
    np.testing.assert_allclose(squares(x), expected, rtol=1e-5)
    if skip:  # else kernels join blocks
        np.testing.assert_allclose(record(squares, x).result, expected, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", ["f4", *exhaustive("f8")])
@pytest.mark.parametrize("number", [0.1, 3e30, *exhaustive(-1e-3, 123456.789)])
def test_what_is_constant_does_not_deviate(axis: int | None, dtype: str, number: float) -> None:
    x = np.full((1521, 100), number, dtype)
    chunked = da.from_array(x, chunks=(500, 30))
    found = [record(lambda chunk: np.var(chunk, axis=axis), x).result]
    with gpusched.enable():
        for of in (da.std, da.nanstd):
            found.append(of(chunked, axis=axis).compute(scheduler="sync"))
    for each in found:
        assert np.array_equal(each, np.zeros_like(each))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("number", [0.1, 3e30, -1e-3, -123456.789])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_is_constant_but_for_nan_does_not_deviate(
    dtype: str, number: float, axis: int
) -> None:
    x = np.full((1521, 97), number, dtype)
    x[RANDOM.random(x.shape) < 0.3] = np.nan
    x[0, 0] = x[5] = x[:, 6] = np.nan
    x[5, 96] = x[1520, 6] = number
    kwargs: Any = {"sum": chunk.nansum, "numel": reductions.nannumel, "axis": (axis,)}
    found = moment_chunk(x, dtype=dtype, keepdims=True, **kwargs)
    assert not found["M"].any()
    np.testing.assert_array_equal(np.squeeze(found["mean"]), np.dtype(dtype).type(number))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_first_number_unlike_the_others_costs_few_digits(axis: int, dtype: str) -> None:
    x = (1e5 + RANDOM.normal(size=(3000, 3000))).astype(dtype)
    x[:1] = x[:, :1] = -1e8
    found = record(lambda chunk: np.var(chunk, axis=axis), x).result
    np.testing.assert_allclose(found, x.var(axis=axis, dtype="f8"), rtol=ERROR[dtype])


def test_the_largest_numbers_overflow_as_in_numpy() -> None:
    x = np.array([[1e200, -1e200, 0.0] * 9, [1.0, 2.0, 3.0] * 9])
    with np.errstate(all="ignore"):
        for axis in (0, 1, None):
            found = record(lambda chunk, k=axis: np.var(chunk, axis=k), x).result
            np.testing.assert_array_equal(np.isinf(found), np.isinf(np.var(x, axis=axis)))
            assert not np.isnan(found).any()


def test_what_is_computed_first_is_computed_once() -> None:
    x = RANDOM.normal(size=(300, 200))
    recorded = record(lambda chunk: squares_of_dask(np.exp(chunk) + 1), x)
    exponentials = [s for launch in recorded.launches for s in launch.kernel.kernel.statements
                    if s.operation == "exp"]  # fmt: skip
    assert len(exponentials) == 1
    y = np.exp(x) + 1
    np.testing.assert_allclose(recorded.result[0], y.var(axis=0) * 300, rtol=1e-12)


def test_other_reductions_are_beside_it() -> None:
    def all_of(x: Any) -> Any:
        return np.var(x, axis=0), np.max(x, axis=0), np.sum(x, axis=0)

    x = RANDOM.normal(size=(300, 200))
    (launch, *_) = record(all_of, x).launches
    assert len(launch.outputs) == 5
    for one, other in zip(record(all_of, x).result, all_of(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_sums_beside_moments_of_rows_share_tiles() -> None:
    def rows(x: Any) -> Any:
        return np.var(x, axis=1, keepdims=True), x - np.mean(x, axis=1, keepdims=True)

    x = RANDOM.normal(size=(2000, 1500)).astype("f4")
    recorded = record(rows, x)
    again = recorded.run(x)
    assert tiles_of(recorded.plan)
    for one, other, wanted in zip(recorded.result, again, rows(x), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, None, (0, 1), -1])
@pytest.mark.parametrize("dtype", ["f4", *exhaustive("f8", "i4", "u1"), "?"])
def test_types_and_shapes_are_numpy_s(axis: Any, dtype: str) -> None:
    x = RANDOM.normal(5, 2, size=(30, 20)).astype(dtype)
    for function in (np.var, np.std):
        for options in ({}, {"keepdims": True}, {"ddof": 1}):
            found = record(lambda c, f=function, o=options: f(c, axis=axis, **o), x).result
            expected = function(x, axis=axis, **options)
            assert (type(found), found.dtype, found.shape) == (
                type(expected), expected.dtype, expected.shape,
            )  # fmt: skip
            np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("of", [da.var, *exhaustive(da.std, da.nanvar), da.nanstd])
@pytest.mark.parametrize("dtype", ["f4", *exhaustive("f8", "i4")])
def test_dask_s_deviations(axis: int | None, of: Callable[..., Any], dtype: str) -> None:
    x = (300 + 50 * RANDOM.normal(size=(2000, 120))).astype(dtype)
    chunked = da.from_array(x, chunks=(700, 60))
    with gpusched.enable(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [of(chunked, axis=axis, ddof=1, split_every=2).compute(scheduler="sync")
                 for _ in range(2)]  # fmt: skip
    expected = getattr(np, of.__name__)(x, axis=axis, ddof=1)
    assert (found[0].dtype, found[0].shape) == (expected.dtype, expected.shape)
    assert np.array_equal(*found)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5 if dtype == "f4" else 1e-12)


def test_columns_without_a_number_are_nan_as_dask_has_them() -> None:
    x = RANDOM.normal(size=(300, 60))
    x[RANDOM.random(x.shape) < 0.3] = np.nan
    x[:, 3] = np.nan
    x[:200, 4] = np.nan
    x[5:, 6] = np.nan
    chunked = da.from_array(x, chunks=(100, 60))
    for ddof in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = da.nanvar(chunked, axis=0, ddof=ddof).compute(scheduler="sync")
            with gpusched.enable():
                found = da.nanvar(chunked, axis=0, ddof=ddof).compute(scheduler="sync")
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def chunks_of(x: np.ndarray, function: Callable[..., Any]) -> list[Any]:
    return [function(part, dtype="f8", axis=(0,), keepdims=True) for part in np.split(x, 4)]


def test_columns_without_a_number_are_not_computed_twice() -> None:
    x = np.arange(12_000.0).reshape(60, 200)
    x[:, ::3] = np.nan
    with gpusched.enable(), np.errstate(all="ignore"):
        before = gpusched.statistics().repeats
        da.nanvar(da.from_array(x, chunks=(30, 200)) * 1, axis=0).compute()
        assert gpusched.statistics().repeats == before


def test_chunks_with_columns_of_nothing_but_nan_are_not_left_to_dask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An ocean's data have such columns on land: dask would compute what was computed before."""
    x = 1e6 + RANDOM.normal(size=(80, 5))
    x[:20, 1] = x[:, 3] = np.nan
    options = {"dtype": "f8", "axis": (0,), "keepdims": True, "sum": chunk.nansum}
    options["numel"] = reductions.nannumel
    for name in ("moment_chunk", "moment_combine"):
        monkeypatch.setattr(reductions, name, lambda *a, **k: pytest.fail("left to dask"))
    pairs = [moment_chunk(part, **options) for part in np.split(x, 4)]
    halves = [moment_combine(half, axis=(0,)) for half in (pairs[:2], pairs[2:])]
    whole = moment_combine(halves, axis=(0,))
    assert whole["n"].tolist() == [[80, 60, 80, 0, 80]] and np.isnan(whole["mean"][0, 3])
    expected = np.nan_to_num(np.nanvar(np.delete(x, 3, axis=1), axis=0))
    np.testing.assert_allclose(np.delete(whole["M"][0, :, 0] / 80, 3)[[0, 2, 3]],
                               expected[[0, 2, 3]], rtol=1e-12)  # fmt: skip
    with pytest.warns(RuntimeWarning, match="invalid value"):
        found = moment_agg(halves, axis=(0,), keepdims=False)
    assert np.isnan(found[3])
    np.testing.assert_allclose(np.delete(found, 3), expected, rtol=1e-9)


def test_dask_s_own_functions_and_these_understand_each_other() -> None:
    x = 50 + RANDOM.normal(size=(400, 7))
    own, plain = chunks_of(x, moment_chunk), chunks_of(x, reductions.moment_chunk)
    for pairs in (own, plain, [*own[:2], *plain[2:]]):
        for combine in (moment_combine, reductions.moment_combine):
            for aggregate in (moment_agg, reductions.moment_agg):
                halves = [combine(half, axis=(0,)) for half in (pairs[:2], pairs[2:])]
                found = aggregate(halves, axis=(0,), keepdims=False)
                np.testing.assert_allclose(found, x.var(axis=0), rtol=1e-11)


@pytest.mark.parametrize(
    "x", [np.ones((0, 3)), np.ones((4, 3), complex), np.ones((4, 3), "f2"),
          np.ma.masked_greater(np.arange(12.0).reshape(4, 3), 7)], ids=lambda x: f"{x.dtype}"
)  # fmt: skip
def test_what_dask_alone_knows_is_left_to_it(x: Any) -> None:
    options = {"dtype": x.dtype if x.dtype.kind == "f" else "f8", "axis": (0,), "keepdims": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = (f(x, **options) for f in (moment_chunk, reductions.moment_chunk))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_higher_moments_are_dask_s() -> None:
    x = da.from_array(RANDOM.normal(size=(4000, 30)), chunks=(1000, 30))
    wanted = da.moment(x, 3, axis=0)
    expected = wanted.compute(scheduler="sync")
    with gpusched.enable():
        np.testing.assert_allclose(wanted.compute(scheduler="sync"), expected, rtol=1e-10)


def test_arrays_join_to_what_they_hold_together() -> None:
    x = 1e8 + RANDOM.normal(size=(5, 90))
    counts = np.array([[90, 90, 0, 90, 90]]).T
    parts = moments(x, (1,), 90)
    parts.squares[counts == 0] = 0
    together = joined(parts, counts)
    held = x[counts[:, 0] > 0]
    np.testing.assert_allclose(together.squares, held.var() * held.size, rtol=1e-12)
    np.testing.assert_allclose(together.mean - 1e8 + together.rest, (held - 1e8).mean(), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["i8", "f2", "c8"])
@pytest.mark.parametrize("of", [da.var, da.std, da.nanvar])
def test_deviations_in_another_dtype_are_dask_s(of: Callable[..., Any], dtype: str) -> None:
    """Dask truncates sums and quotients of integers on the way."""
    x = da.from_array(np.arange(11) * 1.5, chunks=4)
    with gpusched.disable():
        expected = of(x, dtype=dtype).compute(scheduler="sync")
    found = of(x, dtype=dtype).compute(scheduler="sync")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_moments_of_one_part_are_what_they_are() -> None:
    """No passes over results that have nothing to be joined with, as windows' are."""
    found = moments(RANDOM.normal(1e8, 1, (4, 30)), (1,), 30)
    again = joined(Moments(*(each[None] for each in found)), np.full((1, 4, 1), 30))
    assert all(np.shares_memory(one, other) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize("apart", [0, 1e-3, 1, 1e6])
@pytest.mark.parametrize("first", [-1e9, 0, 1e9])
def test_a_part_that_is_far_from_the_others_takes_no_digits(first: float, apart: float) -> None:
    means = np.array([first, *RANDOM.normal(first + apart, apart, 15)])
    x = means[:, None] + RANDOM.normal(0, apart or 1, (16, 40))
    counts = np.full((16, 1), 40)
    for values in (x, x[::-1]):
        together = joined(moments(values, (1,), 40), counts)
        wanted = exact(x)
        assert error(together.squares / x.size, [wanted]) < 1e-13
    assert joined(moments(np.full((3, 5), first), (1,), 5), counts[:3]).squares == 0
