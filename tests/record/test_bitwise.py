"""Reductions, scans and segments of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusched.emit.generate import identity_value
from tests.record.recording import assert_same, check, record

UFUNCS = (np.bitwise_or, np.bitwise_and, np.bitwise_xor)
DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
WAYS: dict[str, Callable[[np.ufunc, Any], Any]] = {
    "rows": lambda ufunc, x: ufunc.reduce(x, axis=0),
    "axes": lambda ufunc, x: ufunc.reduce(x, axis=(0, 2)),
    "kept": lambda ufunc, x: ufunc.reduce(x, axis=-1, keepdims=True),
    "all": lambda ufunc, x: ufunc.reduce(x, axis=None),
    "scan": lambda ufunc, x: ufunc.accumulate(x, axis=1),
    "segments": lambda ufunc, x: ufunc.reduceat(x, [0, 2, 5], axis=0),
    "windows": lambda ufunc, x: ufunc.reduce(
        np.lib.stride_tricks.sliding_window_view(x, 3, axis=0), axis=-1
    ),
}


def bits(dtype: str, *shape: int) -> np.ndarray:
    random = np.random.default_rng(0)
    low, high = (0, 2) if dtype == "?" else (-100, 100)
    return random.integers(low, high, shape or (7, 6, 5)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_numpy_s(dtype: str) -> None:
    for ufunc in UFUNCS:
        for way in WAYS.values():
            found = check(lambda x, u=ufunc, w=way: w(u, x | x), bits(dtype), backend="python")
            assert found.launches
            assert not found.recorder.breaks


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
def test_machine_code_does_the_same(ufunc: np.ufunc) -> None:
    for dtype, way in (("u2", "rows"), ("i8", "axes"), ("?", "all"), ("u1", "windows")):
        check(lambda x, w=WAYS[way]: w(ufunc, x ^ (x == 1)), bits(dtype))


def test_nothing_changes_an_element() -> None:
    for dtype in map(np.dtype, DTYPES):
        for ufunc in UFUNCS:
            x = bits(dtype.str)
            nothing = np.array(identity_value(ufunc.__name__, dtype), dtype)
            assert_same(ufunc(x, nothing), x)


def test_positions_of_a_new_array() -> None:
    def joined(x: Any) -> Any:
        new = np.zeros_like(x)
        np.bitwise_or.at(new, np.array([0, 1, 1, 0, 3, 3, 6]), x | 1)
        return new

    assert check(joined, bits("u2"), backend="python").launches


def test_others_are_numpy_s() -> None:
    with pytest.raises(TypeError, match="not supported"):
        record(lambda x: np.bitwise_or.reduce(x * 2), bits("i4") * 1.0)
    for ufunc in UFUNCS:
        found = record(lambda x, u=ufunc: u.reduce(x[:0], axis=0), bits("u1"), backend="python")
        assert_same(found.result, ufunc.reduce(bits("u1")[:0], axis=0))
