"""Elementwise chains, a sum of one, and a loop for each element."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tests.benchmarks.works.mandelbrot import LIMIT


@numba.njit(parallel=True)
def clip(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    out = np.empty_like(a)
    half, zero, one = a.dtype.type(0.5), a.dtype.type(0), a.dtype.type(1)
    for i in numba.prange(a.size):
        out[i] = min(max(((a[i] + b[i]) * c[i] - a[i]) * half, zero), one)
    return out


@numba.njit(parallel=True, fastmath={"reassoc"})
def _square_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Any:
    total = a.dtype.type(0)
    for i in numba.prange(a.size):
        x = (a[i] - b[i]) * c[i]
        total += x * x
    return total


def square_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Any:
    return a.dtype.type(_square_sum(a, b, c))


@numba.njit(parallel=True)
def mandelbrot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, np.int64)
    two, four = x.dtype.type(2), x.dtype.type(4)
    for row in numba.prange(x.shape[0]):
        for column in range(x.shape[1]):
            a = b = x.dtype.type(0)
            n = 0
            while n < LIMIT and a * a + b * b <= four:
                a, b = a * a - b * b + x[row, column], two * a * b + y[row, column]
                n += 1
            out[row, column] = n
    return out
