"""Neighbourhoods: heat conduction, and the terrain example's table in one pass."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from tests.benchmarks.works import heat as conduction
from tests.benchmarks.works import terrain as example


@numba.njit(parallel=True)
def _step(u: np.ndarray, out: np.ndarray) -> None:
    rate, four = u.dtype.type(conduction.RATE), u.dtype.type(4)
    rows, columns = u.shape
    for i in numba.prange(rows):
        above, below = max(i - 1, 0), min(i + 1, rows - 1)
        for j in range(columns):
            left, right = max(j - 1, 0), min(j + 1, columns - 1)
            around = u[above, j] + u[below, j] + u[i, left] + u[i, right]
            out[i, j] = u[i, j] + rate * (around - four * u[i, j])


def heat(u: np.ndarray) -> np.ndarray:
    now, after = u, np.empty_like(u)
    spare = np.empty_like(u)
    for _ in range(conduction.STEPS):
        _step(now, after)
        now, after = after, spare if now is u else now
    return now


WIDTH, HEIGHT = example.CELL
EAST, NORTH, UP = (getattr(example.example(), name) for name in ("EAST", "NORTH", "UP"))


@numba.njit(error_model="numpy")
def _cell(z: np.ndarray, i: int, j: int, values: np.ndarray) -> None:
    """Write elevation, slope, aspect, hillshade and ruggedness of one cell."""
    real = z.dtype.type
    above, below = max(i - 1, 0), min(i + 1, z.shape[0] - 1)
    left, right = max(j - 1, 0), min(j + 1, z.shape[1] - 1)
    nw, n, ne = z[above, left], z[above, j], z[above, right]
    w, cell, e = z[i, left], z[i, j], z[i, right]
    sw, s, se = z[below, left], z[below, j], z[below, right]
    two = real(2)
    east = ((ne + two * e + se) - (nw + two * w + sw)) / real(8 * WIDTH)
    north = ((nw + two * n + ne) - (sw + two * s + se)) / real(8 * HEIGHT)
    around = math.atan2(-east, -north) * real(180 / math.pi)
    around = around + real(360) if around < 0 else abs(around)
    light = (real(UP) - real(EAST) * east - real(NORTH) * north) / math.sqrt(
        real(1) + east * east + north * north
    )
    rises = (nw - cell) ** 2 + (n - cell) ** 2 + (ne - cell) ** 2 + (w - cell) ** 2
    rises += (e - cell) ** 2 + (sw - cell) ** 2 + (s - cell) ** 2 + (se - cell) ** 2
    values[0] = cell
    values[1] = math.atan(math.sqrt(east * east + north * north)) * real(180 / math.pi)
    values[2] = real(math.nan) if east == 0 and north == 0 else around
    values[3] = max(light, real(0))
    values[4] = math.sqrt(rises)


@numba.njit(parallel=True)
def _table(z: np.ndarray) -> Any:
    """Return smallest, sum, largest and count of each quantity, by row."""
    rows = np.empty((z.shape[0], 4, 5))
    for i in numba.prange(z.shape[0]):
        values = np.empty(5, z.dtype)
        rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3] = math.inf, 0, -math.inf, 0
        for j in range(z.shape[1]):
            _cell(z, i, j, values)
            for k in range(5):
                if not math.isnan(values[k]):
                    rows[i, 0, k] = min(rows[i, 0, k], values[k])
                    rows[i, 1, k] += values[k]
                    rows[i, 2, k] = max(rows[i, 2, k], values[k])
                    rows[i, 3, k] += 1
    return rows


def terrain(z: np.ndarray) -> Any:
    rows = _table(z)
    means = rows[:, 1].sum(axis=0) / rows[:, 3].sum(axis=0)
    table = np.stack([rows[:, 0].min(axis=0), means, rows[:, 2].max(axis=0)], axis=1)
    return tuple(table.astype(z.dtype).ravel())
