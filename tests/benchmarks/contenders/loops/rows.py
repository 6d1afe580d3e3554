"""Works whose rows are independent: softmax, distances, a dense layer."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from tests.benchmarks.works.dense import CUBIC, ROOT


@numba.njit(parallel=True, error_model="numpy", fastmath={"reassoc"})
def softmax(x: np.ndarray) -> Any:
    out, sums = np.empty_like(x), np.empty_like(x[:, :1])
    for row in numba.prange(x.shape[0]):
        largest = x[row, 0]
        for column in range(x.shape[1]):
            largest = max(largest, x[row, column])
        total = x.dtype.type(0)
        for column in range(x.shape[1]):
            power = math.exp(x[row, column] - largest)
            out[row, column] = power
            total += power
        for column in range(x.shape[1]):
            out[row, column] /= total
        sums[row, 0] = largest + math.log(total)
    return out, sums


@numba.njit(parallel=True, fastmath={"reassoc"})
def pairwise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty((len(a), len(b)), a.dtype)
    for i in numba.prange(len(a)):
        for j in range(len(b)):
            total = a.dtype.type(0)
            for k in range(a.shape[1]):
                off = a[i, k] - b[j, k]
                total += off * off
            out[i, j] = math.sqrt(total)
    return out


@numba.njit(parallel=True, fastmath={"reassoc"})
def _activated(y: np.ndarray, bias: np.ndarray) -> np.ndarray:
    out, real = np.empty_like(y[:, 0]), y.dtype.type
    half, one, root, cubic = real(0.5), real(1), real(ROOT), real(CUBIC)
    for row in numba.prange(len(y)):
        total = real(0)
        for column in range(y.shape[1]):
            v = y[row, column] + bias[column]
            total += half * v * (one + math.tanh(root * (v + cubic * v * v * v)))
        out[row] = total
    return out


def dense(x: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    result: np.ndarray = _activated(x @ weights, bias)
    return result
