"""Where the largest and the least elements are: the first ones, NaN before all, as NumPy has it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.breaks import GraphBreak
from gpusched.emit.generate import identity_value
from tests.plan.tiled import make_small, put_some, tiles_of
from tests.record.recording import BACKENDS, assert_same, check, record

SEARCHES = (np.argmax, np.argmin)
WITHOUT_NAN = (np.nanargmax, np.nanargmin)
DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
SPECIALS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0)
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "backwards": lambda x: x[::-1, ::-1],
    "every other": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
}


def few(dtype: str, *shape: int) -> np.ndarray:
    """Return elements of few values, most of which are there several times."""
    random = np.random.default_rng(2)
    low, high = (0, 2) if dtype == "?" else (0, 5) if dtype[0] == "u" else (-2, 3)
    return random.integers(low, high, shape or (7, 6, 5)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_numpy_s(dtype: str) -> None:
    for search in (*SEARCHES, *WITHOUT_NAN):
        for axis in (0, 1, -1, None):
            for keepdims in (False, True):
                found = check(
                    lambda x, s=search, a=axis, k=keepdims: s(np.maximum(x, x), a, keepdims=k),
                    few(dtype), backend="python",
                )  # fmt: skip
                assert len(found.launches) == 1
                assert not found.recorder.breaks


@pytest.mark.parametrize("backend", ["cpu", "arrays"])
@pytest.mark.parametrize(
    ("dtype", "axis"), [("f8", None), ("f4", 0), ("i8", 2), ("?", 1), ("u1", None), ("f2", 0)]
)
def test_machine_code_does_the_same(dtype: str, axis: Any, backend: str) -> None:
    def both(x: Any) -> Any:
        y = x | x if dtype == "?" else x * 1
        return tuple([search(y, axis) for search in SEARCHES])

    check(both, few(dtype), backend=backend)


@pytest.mark.parametrize("search", SEARCHES)
def test_methods_and_the_element_itself(search: Any) -> None:
    def both(x: Any) -> Any:
        y = x * 2 + 1
        return getattr(y, search.__name__)(axis=1), y.max(axis=1), y.sum(axis=1)

    found = check(both, few("f8", 20, 30))
    assert len(found.launches) == 1


@pytest.mark.parametrize("shape", [(5000,), (3, 1700), (1700, 3)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_equal_elements_in_several_blocks(dtype: str, shape: tuple[int, ...]) -> None:
    """Blocks are read from several places in turn, not in their order."""
    for axis in (None, *range(1, len(shape))):

        def both(x: Any, axis: Any = axis) -> Any:
            return np.argmax(x + 0, axis), np.argmin(x + 0, axis)

        for value in (-np.inf if dtype[0] == "f" else -(2**15), 0, 7):
            for length in (1, 127, 129, 513, shape[-1]):
                check(both, np.full(shape, value, dtype)[..., :length])
            for place in np.linspace(0, np.prod(shape) - 1, 5).astype(int):
                x = np.zeros(shape, dtype)
                x.reshape(-1)[place::97] = value
                check(both, x)


@pytest.mark.slow
@given(
    st.integers(1, 200),
    st.integers(1, 9),
    st.sampled_from([0, 1, None]),
    st.booleans(),
    st.sampled_from([*SEARCHES, *WITHOUT_NAN]),
    st.sampled_from(["f2", "f4", "f8"]),
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(sorted(BACKENDS)),
    st.integers(0, 9999),
    st.data(),
)
def test_any_layout_and_any_number(
    rows: int, width: int, axis: Any, across: bool, search: Any, dtype: str, layout: str,
    backend: str, seed: int, data: st.DataObject,
) -> None:  # fmt: skip
    shape = (width, rows) if across else (rows, width)
    x = np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)
    put_some(x, SPECIALS, data)
    x = LAYOUTS[layout](x)

    def found(x: Any) -> Any:
        return search(np.maximum(x, x), axis)

    with suppress(ValueError) if np.isnan(x).all(axis=axis).any() else nullcontext():
        check(found, x, backend=backend)


def test_memory_in_another_order_than_the_axes() -> None:
    x = few("f8", 9, 8, 7)
    for axes in ((2, 1, 0), (1, 2, 0), (0, 2, 1)):
        for axis in (None, 0, 1, 2):
            check(lambda x, a=axis: np.argmax(x * 2, a), x.transpose(axes))


def test_nothing_but_nan_is_an_error() -> None:
    x = np.array([[1.0, np.nan], [np.nan, np.nan]])
    with pytest.raises(ValueError, match="All-NaN slice"):
        np.nanargmax(x, axis=1)
    found = record(lambda x: np.nanargmax(x * 1, axis=0), x[:, ::2])
    assert found.result.tolist() == [0]
    # NumPy takes the place of NaN where all else is as far as what it puts there.
    check(lambda x: np.nanargmax(x * 1, axis=1), np.array([[np.nan, -np.inf], [-np.inf, 1]]))


def test_tiles_count_the_rows_before(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)

    def program(x: Any) -> Any:
        away = x - x.mean(axis=1, keepdims=True)
        return np.argmax(away, axis=0), np.argmin(away, axis=1)

    x = np.random.default_rng(0).integers(-9, 9, (200, 256)).astype("f8")
    found = check(program, x)
    (together,) = tiles_of(found.plan)
    assert any(launch.kernel.kernel.firsts and launch.kernel.kernel.resumes
               for launch in together.launches)  # fmt: skip


def test_windows() -> None:
    for search in SEARCHES:
        for axis in (0, 1):
            check(lambda x, s=search, a=axis: s(sliding_window_view(x * 2, 4, a), axis=-1),
                  few("f4", 12, 20))  # fmt: skip


def test_nothing_comes_before_an_element() -> None:
    for dtype in map(np.dtype, DTYPES):
        for combine, find in (("first_maximum", np.maximum), ("first_minimum", np.minimum)):
            nothing = np.array(identity_value(combine, dtype), dtype)
            assert_same(find(few(dtype.str), nothing), few(dtype.str))
            assert identity_value("place", np.dtype(np.int64)) == 0


def test_others_are_numpy_s() -> None:
    x = np.arange(4) * 1j
    found = record(lambda x: np.argmax(x[::-1]), x, backend="python")
    assert found.result == np.argmax(x[::-1])
    assert GraphBreak.DTYPE in [reason.kind for _, reason in found.recorder.breaks]


def test_errors_are_numpy_s() -> None:
    for search in (*SEARCHES, *WITHOUT_NAN):
        for array, axis in ((np.ones((0, 3)), 0), (np.ones(3), 1), (np.ones(0), None)):
            with pytest.raises(ValueError, match=r".") as expected:
                search(array * 1, axis)
            with pytest.raises(ValueError, match=r".") as found:
                record(lambda x, s=search, a=axis: s(x * 1, a), array, backend="python")
            assert str(found.value) == str(expected.value)
    with warnings.catch_warnings(action="error"):
        check(lambda x: np.argmax(x * 1, axis=1), np.ones((0, 3)), backend="python")
