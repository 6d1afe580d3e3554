"""Sums of negative zeros are zeros of the sign that NumPy's have, however they are joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.record import reductions
from tests.record.recording import record

SUMS: list[Callable[[Any], Any]] = [
    lambda x: np.sum(x * 1, axis=-1),
    lambda x: np.sum(x * 1, axis=0, keepdims=True),
    lambda x: np.mean(x * 1, axis=-1),
    lambda x: np.nansum(x * 1, axis=-1),
    lambda x: (x[:, :1] * 1).sum(axis=1),
    lambda x: np.add.reduce(np.stack([x, x]), axis=0),
    lambda x: (x.reshape(2, 3, 2, 2) * 1).sum(axis=(1, 3)),
    lambda x: np.add.reduceat(x * 1, [0, 3], axis=0),
    lambda x: np.cumsum(x * 1, axis=1),
    lambda x: sliding_window_view(x * 1, 3, axis=0).sum(axis=-1),
    lambda x: sliding_window_view(x * 1, 2, axis=1).mean(axis=-1),
    lambda x: np.prod(x[:, :3] * 1, axis=1),
]


@pytest.mark.parametrize("least", [0, reductions.RESULTS])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("function", SUMS)
def test_zeros_have_numpys_signs(function: Callable[[Any], Any], dtype: str, least: int,
                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(reductions, "RESULTS", least)
    x = np.full((6, 4), -0.0, dtype)
    found, expected = record(function, x, backend="python").result, function(x)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
