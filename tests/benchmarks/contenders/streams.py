"""Loops that compute next to nothing, on every core."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(parallel=True)
def triad(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    for i in numba.prange(out.size):
        out[i] = a[i] + b[i] * c[i]


@numba.njit(parallel=True)
def copy(source: np.ndarray, out: np.ndarray) -> None:
    for i in numba.prange(out.size):
        out[i] = source[i]


@numba.njit(parallel=True)
def fill(out: np.ndarray) -> None:
    for i in numba.prange(out.size):
        out[i] = 1


@numba.njit(parallel=True, fastmath={"reassoc"})
def read(source: np.ndarray) -> float:
    total = source.dtype.type(0)
    for i in numba.prange(source.size):
        total += source[i]
    return total
