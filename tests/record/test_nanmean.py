"""`numpy.nanmean`: as NumPy has it, with its warning."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.graph import enable
from gpusched.store import processors
from gpusched.store.statistics import reset_statistics, statistics

from .recording import check

# Their sums are exact in any order.
NUMBERS = 0.0, -0.0, 0.25, -1.5, 2.0, 1024.0, np.nan
SHAPES = [(4, 5), (1, 1), (3, 1, 4), (7,), (2, 0), (0, 3)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "bool", "c16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_dtypes(shape: tuple[int, ...], dtype: str, keepdims: bool) -> None:
    rng = np.random.default_rng(len(shape))
    numbers = NUMBERS if dtype[0] in "fc" else NUMBERS[:-1]
    x = rng.choice(numbers, shape).astype(dtype)
    for axis in (None, 0, -1, tuple(range(len(shape)))):
        check(lambda x, axis=axis: np.nanmean(x, axis, keepdims=keepdims), x, backend="python")


def test_it_is_one_kernel_with_what_it_is_made_of() -> None:
    x = np.random.default_rng(0).choice(NUMBERS, (40, 50))
    found = check(lambda x: np.nanmean(x * 2, axis=0) + 1, x, backend="python", errors="ignore")
    assert len(found.launches) == 3  # both totals, their quotient, and what is made of it


def test_slices_of_nan_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "interpreted", lambda: True)

    def function(x: Any) -> Any:
        return np.nanmean(x, axis=1)

    def warned() -> tuple[Any, list[str]]:
        x = da.from_array(np.array([[1.0, np.nan], [np.nan, np.nan], [3, 5]]), chunks=(3, 2))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = x.map_blocks(function, drop_axis=1, dtype=float).compute(scheduler="sync")
        return found, [str(each.message) for each in caught]

    expected, messages = warned()
    assert len(messages) == 1
    reset_statistics()
    settings = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.minimum-operations": 0}
    with dask.config.set(settings), enable():
        found, ours = warned()
    np.testing.assert_array_equal(found, expected)
    assert ours == messages
    assert statistics().fused_tasks == 1
