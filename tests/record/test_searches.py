"""Places among sorted numbers, and histograms: NumPy's, of one pass over what they are made of."""

from __future__ import annotations

import warnings
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
from gpusched.breaks import GraphBreak
from gpusched.emit.floatingpoint import IS_X86, REPORTED, take
from gpusched.emit.operations import SEARCHED
from tests.record.recording import BACKENDS, assert_same, check, on_host, record
from tests.tiers import every, exhaustive

RANDOM = np.random.default_rng(11)
EDGES = np.linspace(-3.0, 3.0, 21)


def numbers(*shape: int) -> np.ndarray:
    """Return numbers of which some are NaN, infinite, or edges."""
    found = RANDOM.normal(size=shape)
    found.flat[::17] = np.nan
    places = np.arange(5, found.size, 31)
    found.flat[places] = RANDOM.choice([np.inf, -np.inf, -3.0, 3.0, EDGES[4]], places.size)
    return found


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_kernel_digitizes_what_it_computes(backend: str, right: bool) -> None:
    array = numbers(7, 60)
    found = check(lambda a, b: np.digitize(a * 2 - 1, b, right) * 2, array, EDGES,
                  backend=backend, errors="warn")  # fmt: skip
    assert len(found.launches) == 1
    again = found.run(array, EDGES + 1)  # Other numbers, and the same plan.
    np.testing.assert_array_equal(again, np.digitize(array * 2 - 1, EDGES + 1, right) * 2)


PAIRS = st.tuples(
    st.sampled_from(["f2", "f4", "f8", "i1", "u4", "i8", "u8"]),
    st.sampled_from(["f2", "f4", "f8", "i2", "u8"]),
)


@given(PAIRS, st.data(), st.sampled_from(["left", "right"]))
def test_places_are_numpy_s(dtypes: tuple[str, str], data: st.DataObject, side: Any) -> None:
    values = data.draw(hnp.arrays(dtypes[0], hnp.array_shapes(max_dims=2, max_side=5)))
    edges = np.sort(data.draw(hnp.arrays(
        dtypes[1], st.integers(1, 9),
        elements=hnp.from_dtype(np.dtype(dtypes[1]), allow_nan=False))))  # fmt: skip
    check(lambda a: np.searchsorted(edges, a, side), values, backend="python")


@pytest.mark.parametrize("edges", [EDGES[::-1], np.array([0, np.nan]), np.array([1.0, 0, 2])])
def test_numbers_that_are_not_sorted_are_numpy_s_matter(edges: np.ndarray) -> None:
    take()
    record(lambda a, b: np.searchsorted(b, a), numbers(40), edges, backend="python")
    assert take() & REPORTED


def test_numbers_that_run_backwards_are_digitized() -> None:
    x = da.from_array(numbers(6000), chunks=3000)
    y = da.digitize(x * 2, EDGES[::-1])
    with gpusched.enable(), dask.config.set(SMALL):
        found = y.compute()
    np.testing.assert_array_equal(found, y.compute())
    with pytest.raises(ValueError, match="monotonically"), gpusched.enable():
        da.digitize(x * 2, np.array([1.0, 0, 2])).compute()


def test_too_many_numbers_are_searched_by_numpy() -> None:
    edges = np.arange(float(1 << SEARCHED))
    array = numbers(9)
    found = record(lambda a: np.searchsorted(edges, a), array, backend="python")
    assert [reason.kind for _, reason in found.recorder.breaks] == [GraphBreak.NO_KERNEL]
    np.testing.assert_array_equal(found.result, np.searchsorted(edges, array))


POINTS = {
    "rising": (EDGES, np.sin(EDGES)),
    "two": (np.array([-1.0, 1.0]), np.array([4.0, -4.0])),
    "again": (np.array([-2.0, 0, 0, 1]), np.array([1.0, 2, 3, 4])),
    "infinite": (np.array([-np.inf, -1, 0, 1, np.inf]), np.array([0.0, 1, np.inf, np.nan, 2])),
    "integers": (np.array([-2, 0, 2]), np.array([7, 8, 8], "i2")),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", every(3, POINTS))
def test_values_between_points_are_numpy_s(name: str, backend: str) -> None:
    array = numbers(9, 40)
    array.flat[: len(POINTS[name][0])] = POINTS[name][0]
    for options in ({}, {"left": 0.5, "right": np.nan}):
        # Where processors have one instruction for both, NumPy may multiply and add at once.
        exact = {"ulp": 0 if IS_X86 else 4} if on_host() else {"ulp": 1, "scale": 2}
        check(lambda a, b, c, o=options: np.interp(a, b, c, **o) + 1, array, *POINTS[name],
              backend=backend, **exact)  # fmt: skip
    found = check(lambda a: np.interp(a * 2, *POINTS[name]) - a, array, backend=backend, ulp=4)
    assert len(found.launches) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_zeros_beside_points_keep_their_signs(backend: str) -> None:
    def signs(a: Any) -> Any:
        return tuple(1 / np.interp(a, EDGES, EDGES + 9, left=left) for left in (0.0, -0.0, 0))

    check(signs, np.linspace(-9.0, 0.0, 9), backend=backend, ulp=4)


ENDS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, -1.0, 3.5, 1e308, -1e308, 1.7e308, -1.7e308,
        5e-324, -5e-324, 1e300, -1e300, 2.0**970, -(2.0**970), 2.0**969]  # fmt: skip


@pytest.mark.parametrize("seed", [*range(20), *exhaustive(*range(20, 400))])
def test_values_between_any_points_are_numpy_s_to_the_bit(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 9))
    scale = 10.0 ** random.integers(-300, 300)
    points, values = random.normal(size=(2, count)) * scale
    points = random.choice(ENDS[1:], count) if random.random() < 0.6 else points
    values = random.choice(ENDS, count) if random.random() < 0.6 else values
    points = np.sort(points)
    ends = {side: float(random.choice(ENDS)) for side in ("left", "right") if random.random() < 0.5}
    between = points[1:] / 2 + points[:-1] / 2
    near = np.concatenate([np.nextafter(points, np.inf), np.nextafter(points, -np.inf)])
    x = np.concatenate([ENDS, points, near, between, random.normal(size=5) * scale])
    take()
    with np.errstate(all="ignore"):
        found = record(lambda a, b, c: np.interp(a, b, c, **ends), x, points, values,
                       backend="python").result  # fmt: skip
    if take() & REPORTED:  # NumPy repeats the call: distances between points are beyond floats.
        assert np.ptp(points[np.isfinite(points)] / 2) > 2.0**968
        return
    expected = np.interp(x, points, values, **ends)
    np.testing.assert_array_equal(found, expected)
    numbers = expected == expected
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


UNIFORM = {
    "floats": (100, (-2.5, 2.5)),
    "integers": (7, (-2, 3)),
    "one": (1, (0.0, 1.0)),
    "no-width": (4, (1.0, 1.0)),
    "numpy-s": (33, (np.float64(-0.1), np.float64(0.3))),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u8"])
@pytest.mark.parametrize("name", UNIFORM)
def test_equal_bins_count_as_numpy_s(name: str, dtype: str) -> None:
    bins, ends = UNIFORM[name]
    array = numbers(8, 400) if dtype[0] == "f" else RANDOM.integers(0, 9, (8, 400))
    array = array.astype(dtype)
    found = check(lambda a: np.histogram(a, bins, ends), array, backend="python")
    assert len(found.launches) == 1


@given(st.integers(1, 60), st.floats(-5, 5), st.floats(0.001, 9), st.integers(0, 2**31))
def test_values_on_edges_are_in_numpy_s_bins(bins: int, first: float, width: float,
                                             seed: int) -> None:  # fmt: skip
    edges = np.linspace(first, first + width, bins + 1)
    near = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    for dtype in ("f8", "f4"):
        check(lambda a: np.histogram(a, bins, (first, first + width)), near.astype(dtype),
              backend="python")  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_histograms_of_any_bins(backend: str) -> None:
    array, edges = numbers(30, 20), np.sort(RANDOM.normal(size=9))
    edges[4] = edges[3]
    found = check(lambda a: np.histogram(a * 2, edges), array, backend=backend)
    assert len(found.launches) == 1
    found = record(lambda a, b: np.histogram(a * 2, b)[0], array, edges, backend=backend)
    np.testing.assert_array_equal(found.result, np.histogram(array * 2, edges)[0])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_weights_between_edges_are_added_up_by_bin(dtype: str) -> None:
    edges = np.array([-1.0, -0.3, 0.0, 0.9, 1.0])
    array, weights = RANDOM.normal(size=(300, 40)), RANDOM.random((300, 40)).astype(dtype)
    array[3, 3:9] = np.nan, np.inf, -np.inf, 1.0, 0.0, -0.0
    found = record(lambda a, w: np.histogram(a * 1, edges, weights=w * 2)[0], array, weights)
    expected = np.histogram(array, edges, weights=weights * 2)[0]
    assert found.result.dtype == expected.dtype
    # NumPy takes totals from each other.
    np.testing.assert_allclose(found.result, expected, atol=float(np.finfo(dtype).eps) * 1e7)
    assert found.launches
    assert not found.recorder.breaks


def test_weights_of_integers_between_edges_are_numpy_s() -> None:
    array, edges = RANDOM.normal(size=500), np.array([-1.0, 0.3, 2.0])
    for dtype in ("i1", "i4", "f2"):
        weights = RANDOM.integers(1, 99, 500).astype(dtype)
        found = record(lambda a, w: np.histogram(a, edges, weights=w)[0], array, weights)
        assert_same(found.result, np.histogram(array, edges, weights=weights)[0])
        assert [name for name, _ in found.recorder.breaks] == ["histogram"]


def test_weights_that_are_not_finite_are_added_up_by_numpy() -> None:
    x = da.from_array(RANDOM.normal(size=4000), chunks=2000)
    edges = np.array([-1.0, 0.3, 0.5, 2.0])
    for bad in (np.nan, np.inf):
        weights = da.where(x > 0.45, np.where(x < 0.46, bad, 1.0), 2.0) * 1
        program = da.histogram(x + 0, edges, weights=weights)[0]
        with warnings.catch_warnings(record=True, action="always") as plain, gpusched.disable():
            expected = program.compute(scheduler="sync")
        shown = warnings.catch_warnings(record=True, action="always")
        with dask.config.set(SMALL), gpusched.enable(), shown as fused:
            np.testing.assert_array_equal(program.compute(scheduler="sync"), expected)
        assert {str(each.message) for each in fused} == {str(each.message) for each in plain}


def test_weights_are_added_up_in_numpy_s_order() -> None:
    array, weights = RANDOM.normal(size=150_000), RANDOM.normal(size=150_000)
    check(lambda a, w: np.histogram(a, 9, (-1, 1), weights=w * 2)[0], array, weights)
    check(lambda a, w: np.histogram(a, 9, (-1, 1), weights=w)[0], array[:99],
          weights[:99].astype("f4"), backend="python")  # fmt: skip


def test_histograms_of_two_arrays() -> None:
    x, y = numbers(500), numbers(500).astype("f4")
    for weights in (None, RANDOM.normal(size=500)):
        for bins, ends in (
            ([3, 5], [(-1, 1), (-2, 2)]),
            (4, [(-1, 1), (0, 2)]),
            ([EDGES] * 2, None),
        ):

            def counts(*a: Any, bins: Any = bins, ends: Any = ends) -> Any:
                own = a[2] if len(a) > 2 else None
                return np.histogramdd(a[:2], bins, ends, weights=own)[0]

            arrays = (x * 1, y) if weights is None else (x, y, weights)
            found = check(counts, *arrays, backend="python")
            assert len(found.launches) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.histogram(a * 2),
        lambda a: np.histogram(a * 2, 5),
        lambda a: np.histogram(a * 2, 5, (0, 1), density=True),
        lambda a: np.histogram(a > 0, np.arange(3)),
        lambda a: np.histogram(a * 2, "auto"),
        lambda a: (np.interp(a * 2, EDGES, EDGES * 1j),),
        lambda a: (np.interp(a * 2, EDGES, EDGES, period=3),),
        lambda a: (np.interp(a * 2, EDGES[:1], EDGES[:1]),),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_kernel_is_numpy_s(function: Any) -> None:
    array = RANDOM.normal(size=40)
    found = record(lambda a: function(a)[0], array, backend="python")
    assert found.recorder.breaks
    np.testing.assert_array_equal(found.result, function(array)[0])


SMALL = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.compile": "wait"}


PROGRAMS = {
    "digitize": lambda x: da.digitize(x + 1, EDGES),
    "searchsorted": lambda x: da.searchsorted(da.from_array(EDGES, chunks=-1), x + 1, "right"),
    "histogram": lambda x: da.histogram(x + 1, EDGES)[0],
    "weights": lambda x: da.histogram(x + 1, 10, (-1, 1), weights=da.ones_like(x) / 3)[0],
    "two": lambda x: da.histogram2d(x + 1, x * 2, [5, 6], [(-1, 1), (-2, 2)])[0],
}


def same(build: Callable[[], da.Array]) -> None:
    """Check that a fused program gives what plain dask gives."""
    expected = build().compute()
    with gpusched.enable(), dask.config.set(SMALL):
        before = gpusched.statistics().fused_tasks
        found = build().compute()
        assert gpusched.statistics().fused_tasks > before
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("name", every(2, PROGRAMS))
def test_dask_s_are_plain_dask_s(name: str) -> None:
    x = da.from_array(numbers(6000), chunks=2000)
    same(lambda: PROGRAMS[name](x))


def test_other_bins_are_another_plan() -> None:
    x = da.from_array(numbers(6000), chunks=2000)
    for count, last in ((10, 1), (12, 1), (12, 2)):
        same(lambda n=count, end=last: da.histogram(x + 1, n, (-1, end))[0])
