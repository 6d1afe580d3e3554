"""Vectorised functions against the true value (mpmath), NumPy's edges, and machine code."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import mpmath
import numba
import numpy as np
import pytest
import scipy.special
from numba import types

from gpusched.fusion.backends.cpu import Tuned
from gpusched.fusion.vectormath import FUNCTIONS

TRUE: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "tanh": mpmath.tanh,
    "expit": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log10": mpmath.log10,
    "log1p": lambda x: mpmath.log(1 + x),
    "erf": mpmath.erf,
    "arctan": mpmath.atan,
    "arctan2": mpmath.atan2,
    "hypot": mpmath.hypot,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
}
BINARY = {"arctan2", "hypot"}
UNARY = [name for name in FUNCTIONS if name[:-4] not in BINARY]
RANGES = {"exp": (-746, 710), "exp2": (-1075, 1024), "expm1": (-60, 710), "tanh": (-22, 22),
          "expit": (-745, 60), "erf": (-6, 6), "arctan": (-9, 9), "sin": (-99, 99),
          "cos": (-99, 99), "tan": (-99, 99)}  # fmt: skip
RANGES_F32 = {"exp": (-104, 89), "tanh": (-10, 10), "expit": (-104, 20), "erf": (-4.2, 4.2)}


@lru_cache
def loop(name: str) -> Any:
    """Return a compiled loop over the function."""
    function = FUNCTIONS[name].function
    dtype = types.float32 if name.endswith("f32") else types.float64
    array = types.Array(dtype, 1, "C")
    options = {"error_model": "numpy", "pipeline_class": Tuned}

    def of_one(values: Any, out: Any) -> None:
        for i in range(values.size):
            out[i] = function(values[i])

    def of_two(first: Any, second: Any, out: Any) -> None:
        for i in range(first.size):
            out[i] = function(first[i], second[i])

    if name[:-4] in BINARY:
        return numba.njit(types.void(array, array, array), **options)(of_two)
    return numba.njit(types.void(array, array), **options)(of_one)


def apply(name: str, values: np.ndarray) -> np.ndarray:
    out = np.empty_like(values)
    loop(name)(values, out)
    return out


def dtype_of(name: str) -> Any:
    return np.float32 if name.endswith("f32") else np.float64


def samples(name: str, count: int) -> np.ndarray:
    """Return arguments over the whole range, dense where results are neither 0 nor infinite."""
    generator = np.random.default_rng(len(name))
    function, dtype = name[:-4], dtype_of(name)
    info = np.finfo(dtype)
    exponents = np.exp2(generator.uniform(info.minexp - info.nmant, info.maxexp, count))
    if function == "log1p":
        values = np.concatenate([exponents, generator.uniform(-1, 1, count), -1 / exponents])
        return values[values > -1].astype(dtype)
    if function.startswith("log"):
        near_one = 1 + generator.uniform(-1, 1, count) * 10.0 ** generator.uniform(-7, 0, count)
        return np.concatenate([exponents, near_one]).astype(dtype)
    ranges = RANGES_F32 if dtype is np.float32 else RANGES
    low, high = ranges.get(function, RANGES[function])
    signs = generator.choice([-1, 1], count)
    tiny = signs * np.exp2(generator.uniform(info.minexp - info.nmant, 1, count))
    return np.concatenate([generator.uniform(low, high, count), tiny]).astype(dtype)


def distance(name: str, values: Any, found: np.ndarray) -> np.ndarray:
    """Return how far results are from the true value, in units in the last place."""
    mpmath.mp.prec = 160
    function, dtype = TRUE[name[:-4]], dtype_of(name)
    info = np.finfo(dtype)
    distances = []
    for value, result in zip(values, found, strict=True):
        true = function(*(mpmath.mpf(float(v)) for v in np.atleast_1d(value)))
        if abs(true) > float(info.max):
            distances.append(0.0 if np.isinf(result) else np.inf)
            continue
        exponent = mpmath.frexp(true)[1] if true else -2000
        unit = mpmath.ldexp(1, max(exponent - info.nmant - 1, info.minexp - info.nmant))
        distances.append(float(abs(mpmath.mpf(float(result)) - true) / unit))
    return np.array(distances)


def check(name: str, count: int) -> None:
    values = samples(name, count)
    distances = distance(name, values, apply(name, values))
    worst = int(np.argmax(distances))
    assert distances[worst] <= FUNCTIONS[name].max_ulp, (values[worst], distances[worst])


@pytest.mark.parametrize("name", UNARY)
def test_stated_bound_holds(name: str) -> None:
    check(name, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_stated_bound_holds_densely(name: str) -> None:
    check(name, 20_000)


@pytest.mark.parametrize("name", UNARY)
def test_edges_are_numpys(name: str) -> None:
    dtype = dtype_of(name)
    info = np.finfo(dtype)
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, -info.max, info.tiny, -info.tiny]
    edges += [info.smallest_subnormal, -info.smallest_subnormal, 1, -1, 80, -80, 2000, -2000]
    values = np.array(edges, dtype)
    reference = getattr(np, name[:-4], None) or getattr(scipy.special, name[:-4])
    with np.errstate(all="ignore"):
        expected = reference(values)
    found = apply(name, values)
    exact = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(found[exact], expected[exact])
    np.testing.assert_array_equal(np.signbit(found[expected == 0]),
                                  np.signbit(expected[expected == 0]))  # fmt: skip
    np.testing.assert_allclose(found[~exact], expected[~exact], rtol=4 * info.eps)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n[:-4] in BINARY])
def test_stated_bound_holds_for_two_numbers(name: str) -> None:
    generator = np.random.default_rng(5)
    dtype = dtype_of(name)
    limit = np.finfo(dtype).maxexp - 2
    exponents = np.concatenate([generator.uniform(-limit, limit, (2, 2000)),
                                generator.uniform(-3, 3, (2, 2000))], axis=1)  # fmt: skip
    a, b = (generator.choice([-1, 1], exponents.shape) * np.exp2(exponents)).astype(dtype)
    out = np.empty_like(a)
    loop(name)(a, b, out)
    distances = distance(name, list(zip(a, b, strict=True)), out)
    worst = int(np.argmax(distances))
    assert distances[worst] <= FUNCTIONS[name].max_ulp, (a[worst], b[worst], distances[worst])


@pytest.mark.parametrize("name", UNARY)
def test_loops_use_whole_vectors(name: str) -> None:
    """A scalar loop would hold no packed arithmetic of the widest kind."""
    (assembly,) = loop(name).inspect_asm().values()
    assert "call" not in [line.split()[0] for line in hot(assembly)]
    vectors = [line for line in assembly.splitlines() if "zmm" in line or "ymm" in line]
    assert len(vectors) > 20


def hot(assembly: str) -> list[str]:
    """Return the instructions that work on vectors or call something with a vector near."""
    lines = [line.strip() for line in assembly.splitlines() if line.strip()]
    return [a for a, b in pairwise(lines) if "ymm" in b or "zmm" in b]
