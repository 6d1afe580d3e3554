"""Statistics along axes, and what is made of them."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from tests.benchmarks.contenders.base import THREADS


@numba.njit(parallel=True, error_model="numpy")
def _columns(x: np.ndarray, threads: int) -> Any:
    """Return mean and standard deviation of the columns, in float64, in two passes."""
    rows, columns = x.shape
    mean, square = np.zeros(columns), np.zeros(columns)
    parts = np.zeros((threads, columns))
    for part in numba.prange(threads):
        for row in range(part * rows // threads, (part + 1) * rows // threads):
            for column in range(columns):
                parts[part, column] += x[row, column]
    mean[:] = parts.sum(axis=0) / rows
    parts[:] = 0
    for part in numba.prange(threads):
        for row in range(part * rows // threads, (part + 1) * rows // threads):
            for column in range(columns):
                off = x[row, column] - mean[column]
                parts[part, column] += off * off
    square[:] = parts.sum(axis=0) / rows
    return mean, np.sqrt(square)


@numba.njit(parallel=True, error_model="numpy", fastmath={"reassoc"})
def _rows(x: np.ndarray) -> Any:
    """Return mean and standard deviation of the rows, each row read from the cache again."""
    mean, deviation = np.empty_like(x[:, 0]), np.empty_like(x[:, 0])
    columns = x.dtype.type(x.shape[1])
    for row in numba.prange(x.shape[0]):
        total = square = x.dtype.type(0)
        for column in range(x.shape[1]):
            total += x[row, column]
        middle = total / columns
        for column in range(x.shape[1]):
            off = x[row, column] - middle
            square += off * off
        mean[row], deviation[row] = middle, math.sqrt(square / columns)
    return mean, deviation


def statistics(x: np.ndarray) -> Any:
    return *(v.astype(x.dtype) for v in _columns(x, THREADS)), *_rows(x)


@numba.njit(parallel=True, error_model="numpy")
def _scaled(x: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for row in numba.prange(x.shape[0]):
        for column in range(x.shape[1]):
            out[row, column] = (x[row, column] - mean[column]) / deviation[column]
    return out


def standardise(x: np.ndarray) -> np.ndarray:
    mean, deviation = (v.astype(x.dtype) for v in _columns(x, THREADS))
    result: np.ndarray = _scaled(x, mean, deviation)
    return result


@numba.njit(parallel=True, error_model="numpy")
def climate(field: np.ndarray, month: np.ndarray) -> np.ndarray:
    out = np.empty_like(field)
    days = np.zeros(12)
    for day in range(month.size):
        days[month[day]] += 1
    for y in numba.prange(field.shape[1]):
        mean = np.zeros((12, field.shape[2]))
        for day in range(month.size):
            for x in range(field.shape[2]):
                mean[month[day], x] += field[day, y, x]
        for number in range(12):
            mean[number] /= days[number]
        for day in range(month.size):
            for x in range(field.shape[2]):
                out[day, y, x] = field[day, y, x] - mean[month[day], x]
    return out
