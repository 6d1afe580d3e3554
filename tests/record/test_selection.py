"""Medians and quantiles by kernels: NumPy's, whatever the elements are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpusched
from gpusched.adapters.numpy import METHODS
from gpusched.breaks import GraphBreak
from gpusched.emit import scalars
from gpusched.record.selection import lanes_of, side_by_side, unfilled
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import check, record
from tests.tiers import every, exhaustive

RANDOM = np.random.default_rng(5)
SOME = np.array([0.1, 0.5, 0.83, 0.0, 1.0])


def numbers(*shape: int) -> np.ndarray:
    """Return numbers of which some are NaN; a row of them has nothing else."""
    found = RANDOM.normal(size=shape)
    found.flat[::13] = np.nan
    found[1] = np.nan
    return found


FULL = RANDOM.normal(size=(8, 6, 5))
CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "median": (lambda a: np.median(a * 2, axis=1), FULL),
    "median-odd": (lambda a: np.median(a, axis=-1), FULL),
    "median-axes": (lambda a: np.median(a, axis=(0, 2), keepdims=True), FULL),
    "median-all": (lambda a: np.median(a), FULL),
    "median-nan": (lambda a: np.median(a, axis=1), numbers(8, 6)),
    "median-integers": (lambda a: np.median(a, axis=0), RANDOM.integers(-5, 5, (8, 6), "i4")),
    "nanmedian": (lambda a: np.nanmedian(a * 2, axis=1), numbers(8, 7)),
    "quantile": (lambda a: np.quantile(a, 0.3, axis=0), FULL),
    "quantile-float32": (lambda a: np.quantile(a, 0.3, axis=0), FULL.astype("f4")),
    "quantiles-float32": (lambda a: np.quantile(a, SOME, axis=0), FULL.astype("f4")),
    "percentiles": (lambda a: np.percentile(a, [30, 70], axis=2, keepdims=True), FULL),
    "nanquantile": (lambda a: np.nanquantile(a, 0.7, axis=1, keepdims=True), numbers(8, 7)),
    "nanquantiles": (lambda a: np.nanquantile(a, SOME, axis=1), numbers(8, 7).astype("f4")),
    "nanpercentile": (lambda a: np.nanpercentile(a, 40.0, axis=0), numbers(8, 7)[:1]),
}


@pytest.mark.parametrize("name", every(4, CASES))
@pytest.mark.parametrize("backend", ["python", *exhaustive("cpu")])
def test_results_are_numpy_s(backend: str, name: str) -> None:
    function, array = CASES[name]
    found = check(function, array, backend=backend, errors="warn")
    assert not found.recorder.breaks
    # The one in the middle, or the two on either side of it.
    selections = sum("select" in launch.name for launch in found.launches)
    assert selections == (1 if name == "median-odd" else 2)


def test_compiled_kernels_select() -> None:
    array = numbers(40, 9)
    found = record(lambda a: lanes_of(a, 0).element(20), array)
    np.testing.assert_array_equal(found.result, np.sort(array, axis=0)[20])


@pytest.mark.parametrize("method", every(4, sorted(METHODS)))
def test_methods_are_numpy_s(method: str) -> None:
    array = np.where(RANDOM.random((8, 11)) < 0.05, np.nan, RANDOM.normal(size=(8, 11)))
    found = check(lambda a: np.quantile(a, SOME, axis=0, method=method), array, backend="python")
    assert not found.recorder.breaks


def test_quantiles_may_be_another_array() -> None:
    found = check(lambda a, q: np.quantile(a, q, axis=0), FULL, SOME, backend="python")
    again = found.run(FULL, SOME[::-1].copy())
    np.testing.assert_array_equal(again, np.quantile(FULL, SOME[::-1], axis=0))
    with pytest.raises(ValueError, match="range"):
        found.run(FULL, SOME + 1)


ELEMENTS = st.one_of(
    st.floats(width=32, allow_nan=False).map(abs),
    st.sampled_from([0.0, 1.0, np.inf, -np.inf, np.nan]),
)


@given(hnp.arrays("f8", st.integers(1, 60), elements=ELEMENTS), st.data())
def test_any_rank_of_any_numbers(array: np.ndarray, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, len(array)))
    expected = np.append(np.sort(array), np.nan)[: len(array) + 1]
    with np.errstate(all="ignore"):
        found = selected(array, rank)
        np.testing.assert_equal(found, expected[rank])
        after = following(array, rank + 1, found)
    np.testing.assert_equal(after, np.append(expected, np.nan)[rank + 1])


@pytest.mark.parametrize("array", [2.0 ** np.linspace(-1000, 1000, 801), np.repeat([1.0, 2], 400)],
                         ids=["far apart", "equal"])  # fmt: skip
def test_few_passes_suffice(array: np.ndarray) -> None:
    reads = 0

    class Counted:
        def __getitem__(self, place: int) -> np.float64:
            nonlocal reads
            reads += 1
            return array[place]

    with np.errstate(all="ignore"):
        found = selected(Counted(), 500, len(array))
    assert found == np.sort(array)[500]
    assert reads < 40 * len(array)


def selected(lane: Any, rank: int, length: int | None = None) -> Any:
    """Return what kernels do, in plain Python."""
    length = len(lane) if length is None else length
    return scalars.selected(lane, length, rank, np.float64(np.inf), np.float64(np.nan))


def following(lane: np.ndarray, rank: int, before: Any) -> Any:
    """Return the same of the rank behind one."""
    ends = np.float64(np.inf), np.float64(np.nan)
    return scalars.following(lane, len(lane), rank, before, *ends)


@pytest.mark.parametrize("axes", [(0,), (2,), (2, 0), (0, 1, 2)])
def test_lanes_are_side_by_side(axes: tuple[int, ...]) -> None:
    array = RANDOM.normal(size=(600, 3, 2))
    expected = np.moveaxis(array, axes, range(-len(axes), 0)).ravel()
    np.testing.assert_array_equal(side_by_side(array, axes), expected)


@pytest.mark.parametrize("axes", [(0,), (2,), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_stands_in_for_lanes_is_like_them(order: Any, axes: tuple[int, ...]) -> None:
    array = np.asarray(RANDOM.normal(size=(60, 3, 2)), order=order)
    one, other = side_by_side(array, axes), unfilled(array, axes)
    assert (one.shape, one.strides, one.dtype) == (other.shape, other.strides, other.dtype)
    assert np.may_share_memory(one, array) == np.may_share_memory(other, array)


@pytest.mark.parametrize("tier", ["unfused", *exhaustive("fused")])
def test_recording_moves_no_elements(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []

    def noted(*args: Any) -> Any:
        moved.append(args)
        return side_by_side(*args)

    monkeypatch.setattr("gpusched.record.selection.side_by_side", noted)
    values = RANDOM.normal(size=(50, 40))
    x = da.from_array(values, chunks=(50, 10))
    own = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.tier": tier}
    with dask.config.set(own), gpusched.enable():
        found = da.median(x * 2, axis=0).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.median(values * 2, axis=0))
    assert len(moved) == (0 if tier == "unfused" else 4)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "u2", "i4"])
@pytest.mark.parametrize("length", [1, 12, 37])
def test_arithmetic_between_elements_is_that_of_their_dtype(dtype: str, length: int) -> None:
    array = (60 * RANDOM.normal(size=(length, 6))).astype("i8").astype(dtype)
    if dtype == "i1":
        array[[0, -1], 0] = -128, 127  # whose difference it cannot hold
    if dtype[0] == "f":
        array /= 7

    def selected(a: Any) -> Any:
        several = np.array([0.1, 0.9, 0.97])
        return (np.median(a, axis=0), np.nanmedian(a, axis=0), np.quantile(a, 0.66, axis=0),
                np.nanquantile(a, 0.9, axis=0), np.percentile(a, 33.0, axis=0, method="lower"),
                np.nanpercentile(a, several * 100, axis=0),
                np.quantile(a, several, axis=0))  # fmt: skip

    found = record(selected, array, backend="python")
    assert not found.recorder.breaks
    for one, other in zip(found.result, selected(array), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_shares_of_numbers_are_rounded_as_what_is_left_is() -> None:
    """NumPy has a number of Python's as the share, and rounds it, and what it lacks to 1."""
    array = RANDOM.normal(size=(12, 40)).astype("f4")
    array[RANDOM.random(array.shape) < 0.2] = np.nan
    array[0] = 0
    for q in (0.1, 0.66, 0.9):
        found = record(lambda a, q=q: np.nanquantile(a, q, axis=0), array, backend="python").result
        np.testing.assert_array_equal(found, np.nanquantile(array, q, axis=0))


def test_what_is_left_to_numpy() -> None:
    for function, array, reason in (
        (
            lambda a: np.quantile(a, 1, axis=0),
            RANDOM.integers(0, 9, (4, 5), "u2"),
            GraphBreak.OPERAND,
        ),
        (lambda a: np.median(a, axis=0), RANDOM.integers(0, 9, (4, 5)), GraphBreak.DTYPE),
        (lambda a: np.quantile(a, np.array([0, 1]), axis=0), FULL, GraphBreak.OPERAND),
        (lambda a: np.nanquantile(a, 0.5, axis=0, method="lower"), FULL, GraphBreak.OPTION),
        (
            lambda a: np.quantile(a, 0.5, axis=0, weights=np.ones(len(a)), method="inverted_cdf"),
            FULL,
            GraphBreak.OPTION,
        ),
    ):
        found = record(function, array, backend="python")
        assert found.recorder.breaks[0][1].kind == reason
        np.testing.assert_array_equal(found.result, function(array))


PROGRAMS = {
    "nanquantile": lambda x: da.nanquantile(x, [0.2, 0.9], axis=1),
    "median": lambda x: da.median(x * 2, axis=0),
    "nanmedian": lambda x: da.nanmedian(x, axis=1),
    "quantile": lambda x: da.quantile(x, 0.2, axis=0),
}


@pytest.mark.parametrize("name", exhaustive(*PROGRAMS))
def test_dask_s_are_fused(name: str) -> None:
    array = np.where(RANDOM.random((300, 40)) < 0.1, np.nan, RANDOM.normal(size=(300, 40)))
    lazy = PROGRAMS[name](da.from_array(array, chunks=(100, 40)))
    with gpusched.disable():
        expected = lazy.compute(scheduler="sync")
    settings = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.compile": "wait"}
    with gpusched.enable(), dask.config.set(settings, scheduler="sync"):
        reset_statistics()
        np.testing.assert_array_equal(lazy.compute(), expected)
        counted = statistics()
    assert counted.launches
    assert not any("median" in operation or "quantile" in operation
                   for operation, _ in counted.breaks)  # fmt: skip


def test_dask_s_own_quantiles_of_short_lanes_have_kernels() -> None:
    lazy = PROGRAMS["nanquantile"](da.ones((300, 40), chunks=(100, 40)))
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        kernels = gpusched.explain(lazy).kernels
    assert sum("select" in kernel.name for kernel in kernels) == 2


def test_weights_are_numpy_s() -> None:
    array, weights = RANDOM.normal(size=(6, 40)), RANDOM.random(40)
    options: Any = {"axis": 1, "weights": weights, "method": "inverted_cdf"}
    lazy = da.nanquantile(da.from_array(array, chunks=(3, 40)), 0.75, **options)
    expected = np.nanquantile(array, 0.75, **options | {"weights": weights * np.ones((6, 1))})
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected)
