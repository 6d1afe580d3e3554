"""Quotients and remainders of integers are NumPy's, and are computed on whole vectors."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import pytest
from numba import types

from gpusched.backends.cpu import Tuned
from gpusched.vectormath import division
from gpusched.vectormath.avx512 import HAS_AVX512
from tests.tiers import every

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES = ["floor_divide", "remainder"]


@lru_cache
def loop(name: str, dtype: str) -> Any:
    """Return a compiled loop over the function."""
    function = getattr(division, name)
    array = types.Array(getattr(types, dtype), 1, "C")

    def kernel(first: Any, second: Any, out: Any) -> None:
        for i in range(first.size):
            out[i] = function(first[i], second[i])

    signature = types.void(array, array, array)
    return numba.njit(signature, error_model="numpy", pipeline_class=Tuned)(kernel)


def numbers(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return dividends and divisors, neither 0 nor -1: all of a byte, else of every size."""
    info = np.iinfo(dtype)
    if info.bits == 8:
        every = np.arange(info.min, info.max + 1).astype(dtype)
        a, b = (x.ravel() for x in np.meshgrid(every, every))
    else:
        generator = np.random.default_rng(3)
        drawn = generator.integers(info.min, info.max, (2, 200_000), dtype, endpoint=True)
        a, b = drawn >> generator.integers(0, info.bits, drawn.shape).astype(dtype)
        ends = [info.min, info.max, 0, 1, 2, 3, 5, 1 << (info.bits // 2), 1 << (info.bits - 2)]
        near = np.array([e + d for e in ends for d in range(-3, 4)], object)
        near = near[(near >= info.min) & (near <= info.max)].astype(dtype)
        multiples = b * (a % 1000)
        x, y = (each.ravel() for each in np.meshgrid(near, near))
        a = np.concatenate([a, x, multiples, multiples - 1, multiples + 1])
        b = np.concatenate([b, y, b, b, b])
    allowed = (b != 0) & (b.astype(object) != -1)
    return a[allowed], b[allowed]


@pytest.mark.parametrize("dtype", every(3, DTYPES))
@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_every_size(name: str, dtype: str) -> None:
    a, b = numbers(dtype)
    out = np.empty_like(a)
    loop(name, dtype)(a, b, out)
    expected = getattr(np, name)(a, b)
    wrong = np.flatnonzero(out != expected)
    assert not wrong.size, (a[wrong[0]], b[wrong[0]], out[wrong[0]], expected[wrong[0]])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "uint64"])
@pytest.mark.parametrize("name", NAMES)
def test_no_instruction_divides_integers(name: str, dtype: str) -> None:
    (assembly,) = loop(name, dtype).inspect_asm().values()
    dividing = set(re.findall(r"^\s+(i?div[bwlq]|[su]div)\s", assembly, re.MULTILINE))
    by_processor = dtype == "int64" and not HAS_AVX512
    assert bool(dividing) == by_processor, dividing
