"""Arguments that NumPy refuses are refused, and those of scalars mean what they do in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.record.recording import check, check_error

LOOSE: Any = np
"""NumPy without its types, which refuse some of these, too."""

REFUSED: list[Any] = [
    lambda a: LOOSE.sum(a * 2, axis=True),
    lambda a: LOOSE.max(a * 2, axis=[0]),
    lambda a: LOOSE.mean(a * 2, axis=np.array([0])),
    lambda a: LOOSE.any(a * 2, keepdims=None),
    lambda a: LOOSE.std(a * 2, axis=0, keepdims="yes"),
    lambda a: LOOSE.nanmin(a * 2, axis=0, keepdims=np.True_),
    lambda a: LOOSE.cumsum(a * 2, axis=()),
    lambda a: LOOSE.cumsum(a * 2, axis=True),
    lambda a: LOOSE.nancumprod(a * 2, axis=np.True_),
    lambda a: LOOSE.add.accumulate(a * 2, axis=False),
    lambda a: LOOSE.add.reduceat(a * 2, [0, 1], axis=True),
    lambda a: LOOSE.take(a * 2, np.array([0, 1]), axis=True),
    lambda a: LOOSE.maximum.accumulate(a * 2, axis=0.0),
    lambda a: LOOSE.cumprod(a * 2, dtype=LOOSE._NoValue),
    lambda a: LOOSE.take(a * 2, np.array([0, 1]), axis=0.0),
    lambda a: LOOSE.mean(a.max(), axis=0),
]


@pytest.mark.parametrize("function", REFUSED)
def test_what_numpy_refuses_is_refused(function: Any) -> None:
    check_error(function, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a - a.max().sum(0),
        lambda a: a - a.max().min(axis=np.int64(0)),
        lambda a: a - np.sum(a.max(), axis=np.int8(-1)),
        lambda a: a - np.any(a.max(), axis=-1, keepdims=True),
        lambda a: a - np.cumsum(a.max(), axis=-1),
        lambda a: a - np.argmax(a.max(), axis=0),
        lambda a: a - np.nanargmin(a.max(), axis=-1),
    ],
)
def test_scalars_have_an_axis(function: Any) -> None:
    check(function, np.arange(6.0).reshape(2, 3), backend="python")


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
def test_integers_that_numpy_makes_objects_of_are_numbers(dtype: str) -> None:
    check(lambda a: a * 2 - 10**20, np.arange(6.0).astype(dtype), backend="python")
