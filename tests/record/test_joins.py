"""Arrays joined into a new one: NumPy's values, order in memory and errors, whatever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.examining import why_unsafe
from tests.record.recording import assert_same, check, record

FUNCTIONS = [np.stack, np.concatenate]
DTYPES = ["f8", "f4", "f2", "i4", "u1", "?", "c16"]


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, Any, Any, list[np.ndarray]]:
    """Return a function, a kind of list, an axis, and arrays, which may not fit or be of one dtype.

    Lengths along one axis differ; arrays are in any order in memory.
    """
    function = draw(st.sampled_from(FUNCTIONS))
    ndim = draw(st.integers(0, 3))
    shape = draw(st.lists(st.integers(0, 3), min_size=ndim, max_size=ndim))
    different = draw(st.none() | st.integers(0, max(ndim - 1, 0)))
    axis = draw(st.integers(-ndim - 1, ndim) | st.sampled_from([None, True, np.int64(0)]))
    dtype = draw(st.sampled_from(DTYPES))
    arrays = []
    for number in range(draw(st.integers(1, 4))):
        own = list(shape)
        if different is not None and own:
            own[different] = draw(st.integers(0, 3))
        kind = draw(st.sampled_from([dtype, dtype, dtype, *DTYPES]))
        values = np.arange(number, number + np.prod(own, dtype=int)).reshape(own).astype(kind)
        order = draw(st.permutations(range(ndim)))
        moved = np.array(values.transpose(order), order="C")
        arrays.append(moved.transpose(np.argsort(order)))
    return function, draw(st.sampled_from([list, tuple])), axis, arrays


@given(calls(), st.booleans())
def test_any_arrays(call: tuple[Any, Any, Any, list[np.ndarray]], computed: bool) -> None:
    function, kind, axis, arrays = call

    def joined(*given: Any) -> Any:
        if computed:
            given = tuple(each != 1 for each in given)
        return function(kind(given), axis=axis)

    try:
        expected = joined(*arrays)
    except (ValueError, TypeError) as error:
        with pytest.raises((type(error), TypeError)):  # CuPy raises TypeError for all.
            record(joined, *arrays, backend="python")
        return
    found = record(joined, *arrays, backend="python")
    for result in (found.result, found.run(*arrays)):
        assert_same(result, expected)
        if not computed:
            assert result.strides == expected.strides


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_joined_is_read_by_kernels(function: Any) -> None:
    def extremes(a: Any, b: Any) -> Any:
        joined = function([a * 2, b - 1], axis=0)
        joined += 1
        return joined.max(axis=0), joined

    a, b = np.random.default_rng(0).normal(size=(2, 4, 5))
    found = check(extremes, a, b)
    assert found.launches
    assert not found.recorder.breaks
    assert not np.shares_memory(found.run(a, b)[1], found.run(a, b)[1])


def test_a_constant_is_kept_as_it_was() -> None:
    constant = np.ones(3)
    found = record(lambda a: np.concatenate([a, constant]) * 2, np.zeros(3), backend="python")
    constant[:] = 7
    np.testing.assert_array_equal(found.run(np.ones(3)), [2, 2, 2, 2, 2, 2])


def pairs(x: Any) -> Any:
    left, right = x[..., :-1], x[..., 1:]
    return np.min(np.stack([left, right], axis=-1), axis=-1)


def with_ones(x: Any) -> Any:
    found = np.concatenate((x, np.ones((x.shape[0], 1))), axis=1)
    found -= 0.5
    return found


def of_numbers(x: Any) -> Any:
    return x * np.stack([np.ones(3), np.zeros(3)])


TABLE = np.arange(3)


def of_a_global(x: Any) -> Any:
    return np.stack([x, TABLE])


def into(x: Any) -> Any:
    found = np.zeros_like(x)
    return np.concatenate([x], out=found)


def changes_what_was_joined(x: Any) -> Any:
    np.stack([x, x])[0] += 1
    return x


def changes_its_input_after_joining(x: Any) -> Any:
    found = np.stack([x, x])
    x += 1
    return found


@pytest.mark.parametrize("function", [pairs, with_ones, of_numbers, of_a_global, into,
                                      changes_what_was_joined])  # fmt: skip
def test_safe(function: Any) -> None:
    assert why_unsafe(function) is None


def test_not_shown_safe() -> None:
    assert why_unsafe(changes_its_input_after_joining) is not None
