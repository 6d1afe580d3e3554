"""A parallel loop such as a numba user writes by hand; the result is newly allocated."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from tests.benchmarks import works
from tests.benchmarks.contenders.base import THREADS, Prepared
from tests.benchmarks.works import Work


@numba.njit(parallel=True)
def _black_scholes(
    spot: np.ndarray, strike: np.ndarray, years: np.ndarray, out: np.ndarray
) -> None:
    one = out.dtype.type(1)
    half = out.dtype.type(0.5)
    root = out.dtype.type(works.SQRT_2_OVER_PI)
    cubic = out.dtype.type(0.044715)
    rate = out.dtype.type(works.RATE)
    volatility = out.dtype.type(works.VOLATILITY)
    drift = rate + half * volatility * volatility
    for i in numba.prange(out.size):
        s, k, t = spot[i], strike[i], years[i]
        spread = volatility * math.sqrt(t)
        d1 = (math.log(s / k) + drift * t) / spread
        d2 = d1 - spread
        n1 = half * (one + math.tanh(root * (d1 + cubic * d1 * d1 * d1)))
        n2 = half * (one + math.tanh(root * (d2 + cubic * d2 * d2 * d2)))
        out[i] = s * n1 - k * math.exp(-rate * t) * n2


@numba.njit(parallel=True)
def _clip(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    half = out.dtype.type(0.5)
    zero = out.dtype.type(0)
    one = out.dtype.type(1)
    for i in numba.prange(out.size):
        out[i] = min(max(((a[i] + b[i]) * c[i] - a[i]) * half, zero), one)


@numba.njit(parallel=True, fastmath={"reassoc"})
def _square_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Any:
    total = a.dtype.type(0)
    for i in numba.prange(a.size):
        x = (a[i] - b[i]) * c[i]
        total += x * x
    return total


LOOPS = {"black-scholes": _black_scholes, "clip": _clip}


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    numba.set_num_threads(THREADS)
    if work.reduces:
        return Prepared(lambda: inputs[0].dtype.type(_square_sum(*inputs)))

    def run() -> np.ndarray:
        out = np.empty_like(inputs[0])
        LOOPS[work.name](*inputs, out)
        return out

    return Prepared(run)
