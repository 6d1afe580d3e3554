"""Vectorised functions against the true value (mpmath), NumPy's edges, and machine code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mpmath
import numba
import numpy as np
import pytest
import scipy.special
from llvmlite.binding import get_host_cpu_features
from numba import types

from gpusched.backends.cpu import Tuned
from gpusched.vectormath import FUNCTIONS

TRUE: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "tanh": mpmath.tanh,
    "expit": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log10": mpmath.log10,
    "log1p": mpmath.log1p,
    "erf": mpmath.erf,
    "arctan": mpmath.atan,
    "arctan2": mpmath.atan2,
    "hypot": mpmath.hypot,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "arcsinh": mpmath.asinh,
    "arccosh": mpmath.acosh,
    "arctanh": mpmath.atanh,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "erfc": mpmath.erfc,
    "power": mpmath.power,
    "fmod": lambda x, y: mpmath.mpf(math.fmod(x, y)),
}
BINARY = {"arctan2", "fmod", "hypot", "power"}
UNARY = [name for name in FUNCTIONS if name[:-4] not in BINARY]
RANGES = {
    "arccos": (-1, 1), "arccosh": (1, 9), "arcsin": (-1, 1), "arcsinh": (-9, 9), "arctan": (-9, 9),
    "arctanh": (-1, 1), "cbrt": (-9, 9), "cos": (-99, 99), "cosh": (-711, 711), "erf": (-6, 6),
    "erfc": (-6, 27.3), "exp": (-746, 710), "exp2": (-1075, 1024), "expit": (-745, 60),
    "expm1": (-60, 710), "sin": (-99, 99), "sinh": (-711, 711), "tan": (-99, 99), "tanh": (-22, 22),
}  # fmt: skip
"""Where results are neither 0 nor infinite, nor always the same."""
RANGES_F32 = {
    "cosh": (-90, 90), "erf": (-4.2, 4.2), "erfc": (-4, 10.1), "exp": (-104, 89),
    "expit": (-104, 20), "sinh": (-90, 90), "tanh": (-10, 10),
}  # fmt: skip
WIDE = {"arccosh", "arcsinh", "arctan", "cbrt", "cos", "sin", "tan"}
"""Functions that are interesting up to the largest number."""
PERIODIC = {"cos", "sin", "tan"}
DOMAINS = {"arccos": (-1, 1), "arccosh": (1, np.inf), "arcsin": (-1, 1), "arctanh": (-1, 1)}


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
        values = np.concatenate([exponents, generator.uniform(-1, 1, count), -exponents])
        return values[values > -0.999].astype(dtype)
    if function.startswith("log"):
        near_one = 1 + generator.uniform(-1, 1, count) * 10.0 ** generator.uniform(-7, 0, count)
        return np.concatenate([exponents, near_one]).astype(dtype)
    ranges = RANGES_F32 if dtype is np.float32 else RANGES
    low, high = ranges.get(function, RANGES[function])
    signs = generator.choice([-1, 1], count)
    largest = info.maxexp if function in WIDE else 1
    sizes = signs * np.exp2(generator.uniform(info.minexp - info.nmant, largest, count))
    values = [generator.uniform(low, high, count), generator.uniform(-1.5, 1.5, count), sizes]
    found = np.concatenate(values).astype(dtype)
    low, high = DOMAINS.get(function, (-np.inf, np.inf))
    return found[(found >= low) & (found <= high) & np.isfinite(found)]


def distance(name: str, values: Any, found: np.ndarray) -> np.ndarray:
    """Return how far results are from the true value, in units in the last place."""
    mpmath.mp.prec = 1300 if name[:-4] in PERIODIC else 160
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


COUNTS = [
    100,
    pytest.param(3_000, marks=pytest.mark.exhaustive),
    pytest.param(20_000, marks=pytest.mark.nightly),
]
"""How many numbers of each kind are tried: mpmath takes a tenth of a millisecond for each."""


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", UNARY)
def test_stated_bound_holds(name: str, count: int) -> None:
    check(name, count)


IN_80_BITS = [n for n in UNARY if hasattr(np, n[:-4])]
"""What NumPy has, also for numbers of 80 bits: much quicker than mpmath."""


DENSE = {
    "arccosh": (1, 4),
    "exp": (-80, 80),
    "exp2": (-120, 120),
    "expm1": (-3, 8),
} | dict.fromkeys(["log", "log10", "log2"], (0.1, 5))
"""Where much happens; -1 to 1 for inverses of bounded functions, -8 to 8 for others."""


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs numbers of 80 bits")
@pytest.mark.parametrize("name", IN_80_BITS)
def test_stated_bound_holds_for_many_numbers(name: str) -> None:
    """The C library's functions of 80 bits are the true value to a thousandth of a unit."""
    dtype, function = dtype_of(name), name[:-4]
    low, high = DENSE.get(function) or DOMAINS.get(function, (-8, 8))
    values = np.random.default_rng(11).uniform(low, high, 200_000).astype(dtype)
    values = values[values > -1] if function == "log1p" else values
    values = np.concatenate([values, samples(name, 20_000)])
    found, info = apply(name, values), np.finfo(dtype)
    with np.errstate(all="ignore"):
        true = getattr(np, function)(values.astype(np.longdouble))
        exponents = np.maximum(np.frexp(true)[1] - info.nmant - 1, info.minexp - info.nmant)
        distances = np.abs(found - true) / np.ldexp(np.longdouble(1), exponents)
    right = (true == found) | (np.abs(true) > info.max) & np.isinf(found)
    distances = np.where(right, 0, distances)
    worst = int(np.argmax(distances))
    assert distances[worst] <= FUNCTIONS[name].max_ulp, (values[worst], distances[worst])


@pytest.mark.parametrize("name", UNARY)
def test_edges_are_numpys(name: str) -> None:
    dtype = dtype_of(name)
    info = np.finfo(dtype)
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, -info.max, info.tiny, -info.tiny]
    edges += [info.smallest_subnormal, -info.smallest_subnormal, 1, -1, 80, -80, 2000, -2000]
    edges += [np.nextafter(dtype(1), dtype(k)) for k in (-2, 2)] + [0.5, -0.5, 2, 3e9, 1e18]
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
def test_edges_of_two_numbers_are_numpys(name: str) -> None:
    dtype = dtype_of(name)
    info = np.finfo(dtype)
    edges = [np.nan, np.inf, 0, 1, np.nextafter(dtype(1), dtype(2)), 0.5, 2, 3, 1e9 + 1, info.max,
             info.tiny, info.smallest_subnormal, 0.75, 2**30 + 1, 2**53]  # fmt: skip
    signed = np.array([*edges, *(-e for e in edges)], dtype)
    first, second = (a.ravel() for a in np.meshgrid(signed, signed))
    with np.errstate(all="ignore"):
        expected = getattr(np, name[:-4])(first, second)
    found = np.empty_like(first)
    loop(name)(first, second, found)
    exact = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(found[exact], expected[exact])
    np.testing.assert_array_equal(np.signbit(found[expected == 0]),
                                  np.signbit(expected[expected == 0]))  # fmt: skip
    np.testing.assert_allclose(found[~exact], expected[~exact], rtol=4 * info.eps,
                               atol=info.smallest_subnormal)  # fmt: skip


def operands(name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two arguments each over the whole range, whose result is in range too."""
    generator = np.random.default_rng(5)
    dtype = dtype_of(name)
    limit = np.finfo(dtype).maxexp - 2
    if name.startswith("power"):
        near_one = 1 + generator.uniform(-1, 1, count) * 10.0 ** generator.uniform(-6, -0.3, count)
        sizes = np.exp2(generator.uniform(-limit, limit, count))
        a = np.concatenate([near_one, sizes]).astype(dtype)
        a = a[a != 1]
        return a, (generator.uniform(-limit, limit, a.size) / np.log2(a)).astype(dtype)
    exponents = np.concatenate([generator.uniform(-limit, limit, (2, count)),
                                generator.uniform(-3, 3, (2, count))], axis=1)  # fmt: skip
    a, b = (generator.choice([-1, 1], exponents.shape) * np.exp2(exponents)).astype(dtype)
    return a, b


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n[:-4] in BINARY])
def test_stated_bound_holds_for_two_numbers(name: str, count: int) -> None:
    a, b = operands(name, count)
    out = np.empty_like(a)
    loop(name)(a, b, out)
    distances = distance(name, list(zip(a, b, strict=True)), out)
    worst = int(np.argmax(distances))
    assert distances[worst] <= FUNCTIONS[name].max_ulp, (a[worst], b[worst], distances[worst])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n[:-4] in PERIODIC])
def test_angles_near_multiples_of_a_quarter_turn(name: str, count: int) -> None:
    """There the reduced angle is small, and all that is wrong with the reduction shows."""
    mpmath.mp.prec = 1300
    generator = np.random.default_rng(3)
    largest = 16 if name.endswith("f32") else 44
    counts = np.floor(np.exp2(generator.uniform(0, largest, count)))
    values = np.array([float(mpmath.pi / 2 * int(n)) for n in counts]).astype(dtype_of(name))
    if name.endswith("f64"):
        values = np.append(values, [2.0**45 - 1, 2.0**45, 5 * 2.0**1000])
    distances = distance(name, values, apply(name, values))
    worst = int(np.argmax(distances))
    assert distances[worst] <= FUNCTIONS[name].max_ulp, (values[worst], distances[worst])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_use_whole_vectors(name: str) -> None:
    """What is called in a loop of vectors is called for large elements only."""
    (text,) = loop(name).inspect_llvm().values()
    body = text[text.index("vector.body:") :]
    body = body[: body.index("middle.block:")]
    blocks = re.split(r"^(\S+):.*$", body, flags=re.MULTILINE)
    for label, block in zip(blocks[1::2], blocks[2::2], strict=True):
        calls = re.findall(r"call [^@]*@([\w.]+)", block)
        assert label.startswith("slow") or all(c.startswith("llvm.") for c in calls), calls
    (assembly,) = loop(name).inspect_asm().values()
    wide = "zmm" if get_host_cpu_features().get("avx512f") else "ymm"
    assert assembly.count(wide) > 20


@pytest.mark.parametrize("name", ["fmod_f32", "fmod_f64"])
def test_remainders_are_exact(name: str) -> None:
    """Near multiples, where a quotient rounds to the next whole number, and of any bits at all."""
    generator = np.random.default_rng(11)
    dtype = dtype_of(name)
    y = generator.uniform(0.1, 10, 20_000).astype(dtype)
    counts = np.floor(np.exp2(generator.uniform(0, 60, y.size)))
    near = (counts * y).astype(dtype)
    x = np.concatenate([near, np.nextafter(near, dtype(0)), np.nextafter(near, dtype(np.inf))])
    y = np.tile(y, 3)
    bits = generator.integers(0, 256, (2, 20_000 * x.itemsize), np.uint8).view(dtype)
    x, y = np.append(x, bits[0]), np.append(y, bits[1])
    out = np.empty_like(x)
    loop(name)(x, y, out)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    np.testing.assert_array_equal(out, expected)
    whole = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out[whole]), np.signbit(expected[whole]))
