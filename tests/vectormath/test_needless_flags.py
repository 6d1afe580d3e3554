"""Functions of vectors raise no floating-point flag where NumPy reports no error.

A flag has NumPy repeat the chunk: right, and as slow as without a kernel.
"""

from __future__ import annotations

import itertools
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.special

import gpusched
from gpusched.vectormath import FUNCTIONS
from tests.tiers import every

NAMES = sorted({name.rpartition("_")[0] for name in FUNCTIONS})
ORDINARY = 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 10.0, -10.0, 1e-3, 1e5, np.nan


def reported(function: Any, *values: np.generic) -> bool:
    found: list[str] = []
    with np.errstate(all="call", under="ignore", call=lambda kind, flag: found.append(kind)):
        function(*values)
    return bool(found)


def quiet(function: Any, dtype: str) -> list[np.ndarray]:
    """Return arguments for which NumPy reports nothing, apart from each other."""
    numbers = [np.dtype(dtype).type(value) for value in ORDINARY]
    chosen = [values for values in itertools.product(numbers, repeat=function.nin)
              if not reported(function, *values)]  # fmt: skip
    arrays = []
    for column in zip(*chosen, strict=True):
        array = np.full(9 * len(chosen), column[0])
        array[4::9] = column
        arrays.append(array)
    return arrays


@pytest.mark.parametrize("name", every(6, NAMES))
def test_ordinary_values_are_not_repeated(name: str) -> None:
    function = getattr(np, name, None) or getattr(scipy.special, name)
    with dask.config.set({"gpusched.fusion.minimum-elements": 1}), gpusched.enable():
        for dtype in ("float32", "float64"):
            arrays = [da.from_array(x, chunks=-1) for x in quiet(function, dtype)]
            before = gpusched.statistics()
            (function(*arrays) + 1 / da.ones_like(arrays[0])).compute(scheduler="sync")
            now = gpusched.statistics()
            assert now.launches > before.launches, dtype
            assert now.repeats == before.repeats, dtype
