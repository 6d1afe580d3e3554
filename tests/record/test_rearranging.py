"""Elements that functions only move, take one after the other, or assign numbers to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.plan.expression import UnrecordableError
from gpusched.record.record import ITEMS
from tests.graph.examining import assert_numpys, why_unsafe
from tests.record.recording import BACKENDS, assert_same, check, record

X = np.random.default_rng(8).normal(size=(3, 4))


def periodic(x: Any) -> Any:
    around = sum([np.roll(x, shift, axis) for shift in (1, -1) for axis in range(x.ndim)])
    return around - 2 * x.ndim * x


def normalised(x: Any) -> Any:
    flat = x.reshape(-1) * 2
    return (flat - flat.ravel().max()).reshape(x.shape)


def of_shapes(x: Any) -> Any:
    rows = x.reshape((np.prod(x.shape[:-1]), x.shape[-1]))
    return rows.flatten().repeat(2).reshape((2, -1)) + np.tile(x.ravel(), (2, 1))


def differences(x: Any) -> Any:
    signs = np.diff(x > 0, axis=0).sum(axis=0)
    return np.diff(x, 2, axis=0) + np.atleast_2d(x.max()) * np.atleast_1d(signs)


def slopes(x: Any) -> Any:
    down, across = np.gradient(x)
    return np.hypot(down, across).max(axis=tuple(range(x.ndim)))


def over_rows(x: Any) -> Any:
    total = x[0] * 0
    for k, (row, other) in enumerate(zip(x, x * 2, strict=True)):
        total = total + k * row * other
    return total + sum(x)


FUNCTIONS = [differences, periodic, normalised, of_shapes, slopes, over_rows]


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "cpu"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_it_is_recorded(function: Callable[..., Any], backend: str) -> None:
    assert why_unsafe(function) is None
    assert not check(function, X, backend=backend, ulp=2).recorder.breaks


def view_of_all(x: Any) -> Any:
    t = x * 2
    v = t.reshape(-1)
    t += 1
    return v


def first_of_one(x: Any) -> Any:
    t = x * 2
    v = functools.reduce(np.add, t)
    t += 1
    return v


def rows_in_place(x: Any) -> Any:
    t = x * 2
    for row in t:
        row += 1
    return t


@pytest.mark.parametrize("function", [view_of_all, first_of_one, rows_in_place])
def test_what_views_would_show_is_not_changed(function: Callable[..., Any]) -> None:
    with pytest.raises(UnrecordableError):
        record(function, X[:1].copy())


def test_rows_are_taken_when_the_loop_asks_for_them() -> None:
    def zipped(x: Any) -> Any:
        t = x * 2
        rows = zip(t, x, strict=True)
        t += 1
        return sum([a - b for a, b in rows])

    assert why_unsafe(zipped) is None
    check(zipped, X, backend="python")


def of_all_items(x: Any) -> Any:
    return sum([item * 2 for row in x for item in row])


def to_all_items(x: Any) -> Any:
    found = x * 2
    for k in range(x.shape[0]):
        found[k, 1:] = k
    return found


LONG = [(sum, (ITEMS + 1,)), (of_all_items, (ITEMS // 8, 9)), (to_all_items, (ITEMS + 1, 2))]


@pytest.mark.parametrize(("function", "shape"), LONG)
def test_long_loops_are_not_gone_through(function: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(UnrecordableError):
        record(function, np.ones(shape), backend="python")


@pytest.mark.parametrize(
    "mistaken",
    [lambda x: np.diff(x, axis=(0,)), lambda x: x.reshape(), lambda x: np.gradient(x > 0)],
)
def test_what_numpy_refuses_is_refused(mistaken: Callable[..., Any]) -> None:
    with pytest.raises(TypeError):
        mistaken(X)
    with pytest.raises(TypeError):
        record(mistaken, X, backend="python")


STEPS: dict[str, Callable[..., Any]] = {
    "ravel": lambda t, n: t.ravel(),
    "reshape": lambda t, n: t.reshape((n, -1)),
    "reshape F": lambda t, n: np.reshape(t, (-1, n), order="F"),
    "ravel F": lambda t, n: np.ravel(t, "F"),
    "ravel K": lambda t, n: t.ravel("K"),
    "ravel A": lambda t, n: t.ravel("A"),
    "flatten": lambda t, n: t.flatten(),
    "flatten F": lambda t, n: t.flatten(order="F"),
    "roll": lambda t, n: np.roll(t, n),
    "roll axis": lambda t, n: np.roll(t, -n, axis=n - 1),
    "roll axes": lambda t, n: np.roll(t, (n, 1), (0, -1)),
    "repeat": lambda t, n: t.repeat(n, axis=-1),
    "tile": lambda t, n: np.tile(t, (n, 1)),
    "T": lambda t, n: t.T,
    "last": lambda t, n: t[-1],
    "diff": lambda t, n: np.diff(t, n, axis=0),
    "diff last": lambda t, n: np.diff(t),
    "atleast": lambda t, n: (np.atleast_1d, np.atleast_2d, np.atleast_3d)[n - 1](t),
    "rows": lambda t, n: t.sum() + sum(t),
    "row of n": lambda t, n: list(t)[n],
    "max": lambda t, n: t - t.max(axis=0),
    "sum": lambda t, n: t.sum(),
    "joined": lambda t, n: np.stack([row * n for row in t]),
    "double": lambda t, n: t * 2,
    "halves": lambda t, n: t[::2] + 0.5,
    "float": lambda t, n: t.astype("f4"),
}


OF_MEMORY = {
    "ravel": lambda t: np.ravel(t, "A"),
    "method": lambda t: t.ravel(order="a"),
    "flatten": lambda t: t.flatten("A"),
    "reshape": lambda t: np.reshape(t, -1, order="A"),
    "copy": lambda t: np.copy(t, "A").ravel(),
    "copy method": lambda t: t.copy("A").ravel(),
    "K": lambda t: np.ravel(np.ones_like(t) + t, "K"),
}


@pytest.mark.parametrize("function", OF_MEMORY.values(), ids=OF_MEMORY)
def test_an_order_that_gaps_in_memory_decide_is_numpys(function: Callable[[Any], Any]) -> None:
    """A piece of an array has gaps, and what is computed of the piece alone has none."""
    assert_numpys(lambda x: function((x.T + 1)[1:]), stops="in which a chunk is in memory")


def changed(t: Any, n: int) -> Any:
    """Return an array that its maker changes while a view shows what it was."""
    made = t + 1
    made[0, ..., -n:] = n
    view = made.reshape(-1)
    made[..., 0] = -1
    return view + made.ravel()


STEPS["changed"] = changed


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(["f8", "i4", "?"]))
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    form = draw(st.sampled_from(["C", "F", "reversed", "every other"]))
    if form in "CF":
        return np.array(whole, order=form)
    return whole[::-1] if form == "reversed" else np.repeat(whole, 2, axis=-1)[..., ::2]


@given(arrays(), st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 3)), max_size=5))
def test_any_steps(array: np.ndarray, steps: list[tuple[str, int]]) -> None:
    """What is recorded is what NumPy gives, for the chunk and for another one of its kind."""

    def function(x: Any) -> Any:
        t, kept = x, x
        for name, n in steps:
            t = STEPS[name](t, n)
            kept = t if name == "double" else kept
        return t, kept

    other = array[..., ::-1] if array.strides[-1] < 0 else ~array if array.dtype == bool else -array
    other = np.lib.stride_tricks.as_strided(other.copy("K"), array.shape, other.copy("K").strides)
    before = array.copy()
    try:
        expected: Any = function(array)
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        expected = type(error)
    array[...] = before
    try:
        found = record(function, array, backend="python")
    except (UnrecordableError, ValueError, IndexError, TypeError, AttributeError):
        return  # NumPy says what is wrong, if anything is.
    np.testing.assert_array_equal(array, before)
    assert_same(found.result, expected)
    if other.strides == array.strides and found.recorder.escape is None:
        assert_same(found.run(other), function(other))
