"""Functions of the fast mode against the true value (mpmath, numbers of 80 bits), and at edges."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import scipy.special
from numba import types

from gpusched.backends.cpu import pipeline
from gpusched.vectormath import FEWER_STEPS, FUNCTIONS
from tests.vectormath.test_vectormath import distance, dtype_of, samples

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "mathematics.md"
LEAST = {"expit_f32": -87.0, "expit_f64": -708.0}
"""Below, results are less than the smallest normal number, and may be zero."""


@lru_cache
def loop(name: str) -> Any:
    """Return a compiled loop, of as many vectors at once as kernels have."""
    function = FEWER_STEPS[name].function
    array = types.Array(numba.from_dtype(np.dtype(dtype_of(name))), 1, "C")

    def over(values: Any, out: Any) -> None:
        for i in range(values.size):
            out[i] = function(values[i])

    options = {"error_model": "numpy", "pipeline_class": pipeline(None, 4)}
    return numba.njit(types.void(array, array), **options)(over)


def apply(name: str, values: np.ndarray) -> np.ndarray:
    out = np.empty_like(values)
    loop(name)(values, out)
    return out


def normal(name: str, values: np.ndarray) -> np.ndarray:
    """Return the arguments that are normal numbers, and have such a result."""
    values = values[np.abs(values) >= np.finfo(dtype_of(name)).tiny]
    return values[values > LEAST.get(name, -np.inf)]


@pytest.mark.parametrize("name", FEWER_STEPS)
def test_stated_bound_holds(name: str) -> None:
    values = normal(name, samples(name, 1_500))
    distances = distance(name, values, apply(name, values))
    worst = int(np.argmax(distances))
    assert distances[worst] <= FEWER_STEPS[name].max_ulp, (values[worst], distances[worst])


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs numbers of 80 bits")
@pytest.mark.parametrize("name", FEWER_STEPS)
def test_stated_bound_holds_for_many_numbers(name: str) -> None:
    generator, dtype = np.random.default_rng(3), dtype_of(name)
    drawn = [generator.uniform(-size, size, 200_000) for size in (1e-3, 1, 9, 90)]
    values = normal(name, np.concatenate(drawn).astype(dtype))
    wide, function = values.astype(np.longdouble), name[:-4]
    true = 1 / (1 + np.exp(-wide)) if function == "expit" else getattr(np, function)(wide)
    units = np.spacing(np.abs(true).astype(dtype))
    distances = np.abs(apply(name, values) - true) / units
    worst = int(np.argmax(distances))
    assert distances[worst] <= FEWER_STEPS[name].max_ulp, (values[worst], distances[worst])


@pytest.mark.parametrize("name", FEWER_STEPS)
def test_edges_are_numpys(name: str) -> None:
    dtype = dtype_of(name)
    values = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e30, -1e30] * 5, dtype)
    reference = getattr(np, name[:-4], None) or getattr(scipy.special, name[:-4])
    with np.errstate(all="ignore"):
        expected = reference(values)
    found = apply(name, values)
    tiny = np.finfo(dtype).tiny
    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps, atol=tiny)
    zero = (expected == 0) & (values == 0)
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


def test_what_is_fast_is_less_exact_than_what_is_not() -> None:
    for name, function in FEWER_STEPS.items():
        assert FUNCTIONS[name].max_ulp < function.max_ulp <= 5


def test_page_states_the_bounds() -> None:
    text = PAGE.read_text()
    table = text[text.index("## Fast mathematics") : text.index("Tests hold these")]
    for name, function in FEWER_STEPS.items():
        (line,) = [line for line in table.splitlines() if line.startswith(f"| `{name[:-4]}`")]
        cell = line.split("|")[2 if name.endswith("f32") else 3]
        assert cell.split("ULP")[0].strip() == f"{function.max_ulp:g}"
