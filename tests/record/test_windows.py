"""Reductions of sliding windows: one kernel, NumPy's values, and no array of all windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.backends import python
from gpusched.emit import hostloops
from gpusched.emit.policy import ROOM
from gpusched.plan.expression import UnrecordableError
from tests.record.recording import BACKENDS, check, record

RANDOM = np.random.default_rng(3)

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda w: w.sum(axis=-1),
    "mean": lambda w: w.mean(axis=-1),
    "max": lambda w: w.max(axis=-1),
    "min": lambda w: np.min(w, axis=-1, keepdims=True),
    "nansum": lambda w: np.nansum(w, axis=-1),
    "all": lambda w: (w > -5).all(axis=-1),
    "differences": lambda w: abs(w - w[..., :1]).sum(axis=-1),
}


def whole(shape: tuple[int, ...], dtype: str = "f8", order: Any = "C") -> np.ndarray:
    """Return whole numbers, of which all sums are exact."""
    return np.array(RANDOM.integers(-9, 9, shape), dtype, order=order)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_reduction_of_windows_is_one_kernel(axis: int, name: str) -> None:
    array = whole((30, 23))

    def function(a: Any) -> Any:
        return REDUCTIONS[name](sliding_window_view(a, 7, axis)) * 1

    found = check(function, array, backend="python", ulp=1)
    assert not found.recorder.breaks
    (launch,) = (each for each in found.launches if each.bytes_read >= array.nbytes)
    assert launch.bytes_read <= 2 * array.nbytes  # of `differences`, twice the array


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_are_reduced_beside_each_other(backend: str) -> None:
    array = whole((12, 40))
    for axis, loops in [(0, ("map", "reduce", "map")), (1, ("map", "reduce", "map"))]:
        found = check(lambda a, k=axis: sliding_window_view(a, 3, k).sum(axis=-1) + 1, array,
                      backend=backend)  # fmt: skip
        assert found.launches[0].kernel.kernel.loops == loops


def test_deviations_of_windows() -> None:
    array = RANDOM.normal(1e6, 1, (12, 10))
    for axis in (0, 1):
        found = record(lambda a, k=axis: sliding_window_view(a, 5, k).std(axis=-1), array,
                       backend="python")  # fmt: skip
        expected = sliding_window_view(array, 5, axis).std(axis=-1)
        np.testing.assert_allclose(found.result, expected, rtol=1e-9)


def test_sums_of_float32_are_added_in_float64() -> None:
    array = RANDOM.normal(size=(2, 130)).astype("f4")
    found = record(lambda a: sliding_window_view(a, 50, 1).sum(axis=-1), array, backend="python")
    exact = sliding_window_view(array, 50, 1).sum(axis=-1, dtype="f8")
    np.testing.assert_array_equal(found.result, exact.astype("f4"))


@given(st.data())
def test_windows_of_any_array_are_numpy_s(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=ndim, max_size=ndim)))
    axes = tuple(data.draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=2)))
    lengths = tuple(data.draw(st.integers(1, 2)) for _ in axes)
    order, dtype = data.draw(st.sampled_from("CF")), data.draw(st.sampled_from(["f8", "f4", "i2"]))
    flipped, computed = data.draw(st.booleans()), data.draw(st.booleans())
    over = tuple(
        k for k in range(ndim + len(axes)) if k >= ndim or data.draw(st.booleans())
    )  # fmt: skip
    array = whole(shape, dtype, order)[:: -1 if flipped else 1]
    try:
        sliding_window_view(array, lengths, axes)
    except ValueError:
        with pytest.raises(ValueError, match="window"):
            record(lambda a: sliding_window_view(a, lengths, axes), array)
        return

    def function(a: Any) -> Any:
        a = a * 2 if computed else a
        return sliding_window_view(a, lengths, axes).sum(axis=over) + 1

    check(function, array, backend="python")


@pytest.mark.parametrize("options", [{"writeable": True}, {"subok": True}])
def test_windows_that_may_be_written_to_need_real_arrays(options: dict[str, bool]) -> None:
    with pytest.raises(UnrecordableError, match="may change its arguments"):
        record(lambda a: sliding_window_view(a, 3, 0, **options) + 1, whole((9, 4)))


def test_windows_share_the_memory_of_a_kernel_s_result() -> None:
    found = record(lambda a: sliding_window_view(a * 2, 5, 0), array := whole((40, 30)))
    assert found.result.strides == (240, 8, 240)
    np.testing.assert_array_equal(found.result, sliding_window_view(array * 2, 5, 0))


@st.composite
def integer_windows(draw: st.DrawFn) -> tuple[np.ndarray, int, int, int, Any, bool]:
    """Return an array, the axis and length of its windows, which of them, what they are added in.

    Windows are long enough for running totals, or not; numbers are such that these overflow.
    """
    dtype = np.dtype(draw(st.sampled_from(["?", "i1", "u1", "i2", "u4", "i8", "u8"])))
    axis, length = draw(st.integers(0, 1)), draw(st.sampled_from([1, 2, 9, 20, 300]))
    shape = [draw(st.integers(1, 4))]
    shape.insert(axis, length + draw(st.sampled_from([0, 1, 13, 60, 700])))
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    array = np.array(
        RANDOM.integers(low, high, shape, dtype, endpoint=True), order=draw(st.sampled_from("CF"))
    )
    array = array[draw(st.sampled_from([np.s_[:], np.s_[::-1], np.s_[:, ::-1]]))]
    total = draw(st.sampled_from([None, "i1", "u2", "i8", "?"]))
    return array, axis, length, draw(st.integers(1, 3)), total, draw(st.booleans())


@given(integer_windows())
def test_sums_of_integers_are_numpy_s(case: Any) -> None:
    array, axis, length, jump, total, keepdims = case

    def function(a: Any) -> Any:
        windows = np.moveaxis(sliding_window_view(a, length, axis), axis, 0)[::jump]
        return windows.sum(axis=-1, dtype=total, keepdims=keepdims)

    check(function, array, backend="python")


@pytest.mark.parametrize("extreme", [-128, 127])
@pytest.mark.parametrize("length", [255, 256, 257])
def test_sums_at_the_limits_of_what_totals_are_kept_in(length: int, extreme: int) -> None:
    array = np.full((length + 40, 3), extreme, "i1")
    for dtype in ("i1", "u1", "?"):
        check(lambda a: sliding_window_view(a, length, 0).sum(axis=-1), array.astype(dtype))


@pytest.mark.parametrize("axis", [0, 1])
def test_counts_in_windows_are_kept_in_as_few_bytes_as_hold_them(axis: int) -> None:
    array = whole((90, 90)) > 0

    def twice(a: Any) -> Any:
        """As dask does it, which joins the sums of a chunk's parts."""
        sums = sliding_window_view(a, 30, axis).sum(axis=-1, keepdims=True)
        return sums.sum(axis=-1) >= 15

    found = check(twice, array)
    counted, compared = (launch.kernel.kernel for launch in found.launches)
    assert counted.outputs[0].dtype == "uint8" and counted.windows == 2 * axis
    assert "reduce" not in compared.loops and compared.outputs[0].dtype == "bool"


JOINED: dict[str, Callable[..., Any]] = {
    "max": lambda w, **options: w.max(axis=-1, **options),
    "min": lambda w, **options: np.min(w, axis=-1, **options),
    "fmax": lambda w, **options: np.fmax.reduce(w, axis=-1, **options),
    "fmin": lambda w, **options: np.fmin.reduce(w, axis=-1, **options),
    "nanmax": lambda w, **options: np.nanmax(w, axis=-1, **options),
    "any": lambda w, **options: w.any(axis=-1, **options),
    "all": lambda w, **options: np.all(w, axis=-1, **options),
    "sum": lambda w, **options: w.sum(axis=-1, dtype="f8", **options),
}


@st.composite
def long_windows(draw: st.DrawFn) -> tuple[np.ndarray, int, int, int]:
    """Return an array, the axis and length of its windows, and how far these are apart."""
    dtype = np.dtype(draw(st.sampled_from(["?", "i1", "u8", "f2", "f4", "f8"])))
    axis, length = draw(st.integers(0, 1)), draw(st.sampled_from([7, 46, 60, 61, 97]))
    shape = [draw(st.integers(1, 3))]
    shape.insert(axis, length + draw(st.sampled_from([0, 1, 13, 60, 120])))
    numbers = RANDOM.integers(0, 2 if dtype.kind == "b" else 99, shape)
    array = np.array(numbers, dtype, order=draw(st.sampled_from("CF")))
    if dtype.kind == "f":
        some = draw(st.sampled_from([0, 0.01, 0.5, 1]))
        array[RANDOM.random(shape) < some] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    array = array[draw(st.sampled_from([np.s_[:], np.s_[::-1], np.s_[:, ::-1]]))]
    return array, axis, length, draw(st.integers(1, 3))


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@pytest.mark.parametrize("name", JOINED)
@given(case=long_windows(), keepdims=st.booleans())
def test_long_windows_give_numpy_s_values(name: str, case: Any, keepdims: bool) -> None:
    array, axis, length, jump = case

    def function(a: Any) -> Any:
        windows = np.moveaxis(sliding_window_view(a, length, axis), axis, 0)[::jump]
        return JOINED[name](windows, keepdims=keepdims)

    check(function, array, backend="python")


# Rows that many windows share ------------------------------------------------------------


@st.composite
def windows_of_rows(draw: st.DrawFn) -> tuple[list[np.ndarray], int, int, int, list[str]]:
    """Return arrays, the axis and length of windows, how far they are apart, and reductions."""
    length, axis = draw(st.integers(2, 9)), draw(st.integers(0, 1))
    shape = [draw(st.integers(1, 3)), draw(st.integers(1, 9))]
    shape.insert(axis, length - 1 + draw(st.integers(1, 25)))
    arrays = []
    for _ in range(draw(st.integers(1, 2))):
        dtype, order = draw(st.sampled_from(["f4", "f8", "i2", "?"])), draw(st.sampled_from("CF"))
        array = whole(tuple(shape), dtype, order)
        if dtype[0] == "f":
            some = draw(st.sampled_from([0, 0.02, 1]))
            special = draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0]))
            array[RANDOM.random(shape) < some] = special
        arrays.append(array[draw(st.sampled_from([np.s_[:], np.s_[::-1], np.s_[:, ::-1]]))])
    names = draw(st.lists(st.sampled_from(sorted(JOINED)), min_size=1, max_size=3, unique=True))
    return arrays, axis, length, draw(st.sampled_from([1, 1, 2])), names


@pytest.mark.parametrize("errors", ["ignore", "warn"])
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@given(case=windows_of_rows(), keepdims=st.booleans())
def test_rows_that_windows_share(errors: str, case: Any, keepdims: bool) -> None:
    arrays, axis, length, jump, names = case

    def function(*given: Any) -> Any:
        shared = np.moveaxis(sliding_window_view(given[0], length, axis), axis, 0)[::jump]
        for other in given[1:]:
            view = np.moveaxis(sliding_window_view(other, length, axis), axis, 0)[::jump]
            shared = np.where(view > 0, shared, -shared if shared.dtype != bool else shared)
        return tuple(JOINED[name](shared, keepdims=keepdims) for name in names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hostloops.windows, "WINDOW_COLUMNS", 3)
        # Of zeros of both signs, NumPy's extremes are now one and now the other: by where in memory
        # its vectors begin. Signs of zeros are compared of exact results only.
        check(function, *arrays, backend="python", errors=errors, ulp=1)


@pytest.mark.parametrize("length", [4, 7, 30])
@pytest.mark.parametrize("count", [2, 7, 30, 61])
def test_a_row_is_computed_twice_at_most_for_as_many_windows_as_have_it(
    length: int, count: int
) -> None:
    array = whole((count + length - 1, 5))
    (launch,) = check(lambda a: sliding_window_view(a, length, 0).max(axis=-1), array).launches
    kernel, calls = launch.kernel.kernel, list[Any]()
    assert kernel.windows == 0
    found = python.define(kernel, hostloops.source(kernel), "windows", {})
    point = found["point"]

    def counted(*args: Any) -> Any:
        calls.append(args)
        return point(*args)

    found["point"] = counted
    out = np.full((count, 5), np.nan)
    call = python.callable_of(kernel, found)
    call(array.reshape(-1), out.reshape(-1), *launch.numbers)
    np.testing.assert_array_equal(out, sliding_window_view(array, length, 0).max(axis=-1))
    groups = -(-count // length)
    assert len(calls) == 5 * (groups * length + count - groups)


def test_sums_of_windows_have_nothing_of_other_rows() -> None:
    array = RANDOM.normal(size=(200, 40))
    array[60, 3], array[90, 5], array[120, 7] = np.nan, np.inf, 1e300
    found = record(lambda a: sliding_window_view(a, 30, 0).sum(axis=-1), array)
    (launch,) = found.launches
    assert launch.kernel.kernel.windows == 0
    exact = sliding_window_view(array, 30, 0).astype(np.longdouble).sum(axis=-1)
    bound = 30 * np.spacing(abs(sliding_window_view(array, 30, 0)).sum(axis=-1))
    known = np.isfinite(exact)
    np.testing.assert_array_equal(np.isfinite(found.result), known)
    assert (abs(found.result[known] - exact[known]) <= bound[known]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [4, 5, 30, 63, 64, ROOM // 2, ROOM // 2 + 1])
@pytest.mark.parametrize("count", [1, 20, ROOM, 2 * ROOM + 3])
def test_windows_along_contiguous_elements(backend: str, length: int, count: int) -> None:
    if backend == "python":
        count, length = count % 300, min(length, 200)
    found = check(lambda a: sliding_window_view(a, length).max(axis=-1) + 1,
                  whole((count + length - 1,)), backend=backend)  # fmt: skip
    shares = found.launches[0].kernel.kernel.windows == 1
    assert shares == (count > 1 and length <= ROOM // 2)


@pytest.mark.parametrize("length", [7, 30, 100])
def test_equal_windows_along_contiguous_elements_have_equal_sums(length: int) -> None:
    found = record(lambda a: sliding_window_view(a, length).sum(axis=-1), np.full(5000, 0.1))
    assert len(set(found.result.tolist())) == 1


def test_windows_that_are_not_each_a_row_further_are_reduced_as_others() -> None:
    for axis, array in enumerate([whole((40, 12)), whole((12, 40))]):

        def every_other(a: Any, axis: int = axis) -> Any:
            windows = np.moveaxis(sliding_window_view(a, 9, axis), axis, 0)[::2]
            return windows.max(axis=-1)

        (launch,) = check(every_other, array).launches
        assert launch.kernel.kernel.windows is None
