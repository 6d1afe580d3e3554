"""What a kernel reduces is NumPy's arithmetic, bit by bit, however its loops join the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numba
import numpy as np
import pytest

import gpusched
from gpusched import statistics

RANDOM = np.random.default_rng(5)


@gpusched.kernel
def rescaled(x):  # type: ignore[no-untyped-def]
    return x * 0.1 * 10.0


@numba.vectorize(["float32(float32)", "float64(float64)"])  # type: ignore[untyped-decorator]
def thirds(x):  # type: ignore[no-untyped-def]
    return x / 3 * 3


@numba.njit  # type: ignore[untyped-decorator]
def product(x, y):  # type: ignore[no-untyped-def]
    return x * y + x


@numba.vectorize(["float32(float32, float32)", "float64(float64, float64)"])  # type: ignore[untyped-decorator]
def by_a_function(x, y):  # type: ignore[no-untyped-def]
    return product(x, y)


VALUES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a product and a sum": lambda x, y, z: x * y + z,
    "and a difference": lambda x, y, z: z - x * y,
    "two products": lambda x, y, z: x * y - y * z,
    "constant factors": lambda x, y, z: x * 0.1 * 10.0,
    "constant divisors": lambda x, y, z: x / 3 * 3,
    "quotients": lambda x, y, z: x / 7 / 3,
    "a product of products": lambda x, y, z: (x * x) * (x * x),
    "products in order": lambda x, y, z: x * x * x * x,
    "a cube": lambda x, y, z: x**2 * x,
    "what is lost": lambda x, y, z: (x + 1e9) - 1e9,
    "and found again": lambda x, y, z: (x + y) + x - y,
    "a common factor": lambda x, y, z: x * y + x * z,
    "multiples": lambda x, y, z: x * 2.5 + x * 3.25,
    "reciprocals": lambda x, y, z: 1 / (1 / x),
    "a distance": lambda x, y, z: np.sqrt(x * x + y * y),
    "a polynomial": lambda x, y, z: ((x * 0.3 + 0.7) * x + 0.1) * x,
}
REDUCED: dict[str, Callable[[Any], Any]] = {
    "the largest": lambda apart: abs(apart).max(),
    "of columns": lambda apart: abs(apart).max(axis=0).max(),
    "of rows": lambda apart: abs(apart).max(axis=1).max(),
    "a count": lambda apart: (apart != 0).sum(),
    "a sum": lambda apart: abs(apart).sum(),
    "a mean of columns": lambda apart: abs(apart.mean(axis=0)).max(),
    "deviations": lambda apart: apart.std(axis=0).max(),
    "deviations of rows": lambda apart: apart.std(axis=1).max(),
    "whether any": lambda apart: (apart != 0).any(),
}


def apart(function: Callable[..., Any], reduced: str, dtype: str) -> Any:
    """Return how far a kernel's values are from NumPy's, found by a reduction of the same kernel.

    Each is reduced alone: LLVM contracts a product that nothing else needs.
    """
    given = RANDOM.normal(size=(3, 60, 200)).astype(dtype)
    chunked = [da.from_array(each, chunks=(30, 200)) for each in given]
    expected = da.from_array(function(*given), chunks=(30, 200))
    before = statistics().launches
    with gpusched.enable(), dask.config.set({"gpusched.fusion.tier": "fused"}):
        found = REDUCED[reduced](function(*chunked) - expected).compute(scheduler="sync")
    assert statistics().launches > before
    return found


@pytest.mark.parametrize(
    ("reduced", "dtype"), [("the largest", "f4"), ("the largest", "f8"), ("of columns", "f8")]
)
@pytest.mark.parametrize("value", VALUES)
def test_values_are_numpy_s(value: str, dtype: str, reduced: str) -> None:
    assert apart(VALUES[value], reduced, dtype) == 0


@pytest.mark.parametrize("value", ["a product and a sum", "constant factors"])
@pytest.mark.parametrize("reduced", REDUCED)
def test_whatever_reduces_them(reduced: str, value: str) -> None:
    assert apart(VALUES[value], reduced, "f8") == 0


@pytest.mark.parametrize(
    "function",
    [lambda x, y, z: rescaled(x), lambda x, y, z: thirds(x), lambda x, y, z: by_a_function(x, y)],
    ids=["kernel", "ufunc", "calling"],
)
def test_functions_of_the_users_are_numba_s(function: Callable[..., Any]) -> None:
    assert apart(function, "the largest", "f8") == 0
