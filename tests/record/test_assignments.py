"""Numbers assigned to the elements of a new array that a mask chooses."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph import enable
from gpusched.graph.safety.outside import Outside
from gpusched.plan.expression import UnrecordableError
from tests.graph.conftest import SETTINGS
from tests.graph.examining import recorded, why_unsafe
from tests.record.recording import assert_same, check, record

X = np.random.default_rng(3).normal(size=(5, 4))


def masked(x: Any) -> Any:
    found = 1 / x
    found[x < 0] = np.nan
    found[found > 2] = 2
    found *= 2
    return found


def test_it_is_one_kernel() -> None:
    assert why_unsafe(masked) is None
    assert len(check(masked, X).launches) == 1


DTYPES = ["f8", "f4", "f2", "i8", "i4", "u1", "?", "c16"]
NUMBERS = [0, 1, -1, 2.7, -0.0, np.nan, np.inf, 300, 1e300, True, 2**62 + 1, np.float32(0.1),
           np.int64(-5), np.uint8(200), np.float64(1e40), 1j, np.str_("inf"), np.longdouble(2),
           np.timedelta64(3, "s")]  # fmt: skip


def rows(x: Any) -> Any:
    found = x * 2
    found[x.min(axis=1) < -1] = 0
    return found


def test_a_mask_of_rows() -> None:
    assert why_unsafe(rows) is None
    check(rows, X)


@pytest.mark.parametrize(("order", "other"), ["CF", "FC"])
def test_the_order_in_memory_is_that_of_the_array(order: Any, other: Any) -> None:
    def assigned(x: Any, y: Any) -> Any:
        found = x.copy()
        found[y < 0] = 0
        return found

    arrays = np.array(X, order=order), np.array(X, order=other)
    graph = {("x", 0, 0): arrays[0], ("y", 0, 0): arrays[1]}
    x, y = (da.Array(graph, name, ((5,), (4,)), "f8") for name in "xy")
    with dask.config.set(SETTINGS), enable():
        (made,) = da.map_blocks(assigned, x, y).persist(scheduler="sync").dask.values()
    expected = assigned(*arrays)
    np.testing.assert_array_equal(made, expected)
    assert made.strides == expected.strides


@given(st.sampled_from(DTYPES), st.sampled_from(NUMBERS), st.integers(0, 63), st.booleans())
def test_any_number(dtype: str, number: Any, mask: int, again: bool) -> None:
    def assigned(x: Any, chosen: Any) -> Any:
        found = x.astype(x.dtype)
        kept = found == found
        found[chosen] = number
        if again:
            found[kept] = 1
        return found, kept

    x = np.arange(6).reshape(2, 3).astype(dtype)
    chosen = np.array([mask >> k & 1 for k in range(6)], bool).reshape(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            expected = assigned(x, chosen)
        except (TypeError, OverflowError, ValueError, RuntimeWarning):
            expected = None
        try:
            found = record(assigned, x, chosen, backend="python")
        except UnrecordableError:  # Then NumPy says what is wrong.
            return
    assert expected is not None
    assert_same(found.result, expected)
    assert_same(found.run(x, ~chosen), assigned(x, ~chosen))


def borders(x: Any) -> Any:
    found = np.zeros_like(x)
    found[0] = found[-1] = found[..., -1:] = 1
    found[1:2] = -1
    found[(0, -1), 1::2] = np.nan
    found[[0, 2]] = x.ndim
    return found * x


def test_positions_along_axes_are_in_the_same_kernel() -> None:
    assert why_unsafe(borders) is None
    assert len(check(borders, X).launches) == 1


INDICES = st.one_of(
    st.integers(-3, 3), st.booleans(), st.none(), st.just(...), st.just([]), st.just(()),
    st.builds(slice, *[st.none() | st.integers(-4, 4)] * 2, st.sampled_from([None, 1, 2, -1])),
    st.lists(st.integers(-3, 3), max_size=3), st.tuples(st.integers(-2, 2), st.integers(-2, 2)),
    st.builds(np.int8, st.integers(-3, 3)), st.just([True, False]), st.just([[0, 1]]),
)  # fmt: skip


@given(st.lists(INDICES, max_size=4), st.booleans(), st.lists(st.integers(0, 3), max_size=3))
def test_any_positions(items: list[Any], several: bool, shape: list[int]) -> None:
    def assigned(x: Any) -> Any:
        found = x * 2
        found[tuple(items) if several or not items else items[0]] = 7
        return found

    x = np.arange(1.0, 1 + np.prod(shape, dtype=int)).reshape(shape)
    try:
        expected: Any = assigned(x)
    except (IndexError, TypeError, ValueError) as error:
        expected = type(error)
    try:
        found = record(assigned, x, backend="python")
    except (UnrecordableError, IndexError):  # Then NumPy says what is wrong.
        return
    assert_same(found.result, expected)
    assert_same(found.run(-x), assigned(-x))


def of_an_argument(x: Any) -> Any:
    x[x < 0] = 0
    return x


def of_a_view(x: Any) -> Any:
    found = x * 2
    found.T[x.T < 0] = 0
    return found


def that_a_view_shows(x: Any) -> Any:
    found = x * 2
    view = found[1:]
    found[x < 0] = 0
    return view


def of_an_array(x: Any) -> Any:
    found = x * 2
    found[x < 0] = x
    return found


def of_pairs(x: Any) -> Any:
    found = x * 2
    found[[0, 1], [0, 1]] = 1
    return found


def of_a_number(x: Any) -> Any:
    found = x.astype("i1")
    found[0] = x.max() + 300
    return found * 2


def of_a_larger_number(x: Any) -> Any:
    found = x.astype("i1")
    found[0, 0] = np.trunc(x).astype(int).sum()
    return found * 2


def of_what_is_kept(x: Any) -> Any:
    found = np.arange(3.0)
    found[x < 0] = 1
    return found * x


@pytest.mark.parametrize(
    "function",
    [of_an_argument, of_a_view],
)
def test_not_shown_safe(function: Any) -> None:
    assert why_unsafe(function) is not None


# NumPy raises an error for numbers that the dtype does not have.
@pytest.mark.parametrize(
    "function", [of_an_array, of_what_is_kept, of_a_number, of_a_larger_number]
)
def test_what_ends_the_recording(function: Any) -> None:
    assert why_unsafe(function) is None
    with pytest.raises(UnrecordableError):
        recorded(function, Outside(), X.copy())


@pytest.mark.parametrize("function", [of_an_argument, of_a_view, that_a_view_shows, of_pairs])
def test_what_is_recorded_all_the_same_ends_the_recording(function: Any) -> None:
    with pytest.raises(UnrecordableError):
        record(function, X.copy())


@pytest.mark.parametrize("index", [[0, 1], [True, False]])
def test_other_indices_of_a_new_array(index: Any) -> None:
    def assigned(x: Any, index: Any) -> Any:
        found = x * 2
        found[index] = 0
        return found

    with pytest.raises(UnrecordableError):
        record(assigned, X, np.asarray(index))
