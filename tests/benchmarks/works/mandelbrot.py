"""How fast points of the plane escape: a loop with a branch for each element."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, by_squares, square

LIMIT = 50


def escape(x: Any, y: Any) -> Any:
    """Return how many steps z -> z * z + c stays within 2, at most 50."""
    a, b, n = x - x, y - y, 0
    while n < LIMIT and a * a + b * b <= 4:
        a, b = a * a - b * b + x, 2 * a * b + y
        n += 1
    return n


def with_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the same, going on with the points that have not escaped."""
    count = np.zeros(x.size, np.int64)
    alive, c_x, c_y = np.arange(x.size), x.ravel(), y.ravel()
    a, b = np.zeros_like(c_x), np.zeros_like(c_y)
    for _ in range(LIMIT):
        inside = a * a + b * b <= 4
        alive, a, b, c_x, c_y = (v[inside] for v in (alive, a, b, c_x, c_y))
        count[alive] += 1
        a, b = a * a - b * b + c_x, 2 * a * b + c_y
    return count.reshape(x.shape)


def masked(xp: Any, x: Any, y: Any) -> Any:
    """Return the same where nothing can be left out: every point takes every step."""
    a, b, n = x - x, y - y, xp.zeros(x.shape, dtype=xp.int64)
    for _ in range(LIMIT):
        inside = a * a + b * b <= 4
        n = n + inside
        a, b = xp.where(inside, a * a - b * b + x, a), xp.where(inside, 2 * a * b + y, b)
    return n


def jax_program(xp: Any, x: Any, y: Any) -> Any:
    """Return the same by a loop that XLA vectorises."""
    import jax

    def body(_: Any, state: Any) -> Any:
        a, b, n = state
        inside = a * a + b * b <= 4
        moved = xp.where(inside, a * a - b * b + x, a), xp.where(inside, 2 * a * b + y, b)
        return *moved, n + inside

    zero = xp.zeros_like(x)
    return jax.lax.fori_loop(0, LIMIT, body, (zero, zero, xp.zeros(x.shape, int)))[2]


@cache
def kernel() -> Any:
    import gpusched

    return gpusched.kernel(escape)


def plane(count: int, dtype: str) -> list[np.ndarray]:
    """Return both coordinates of each point of a grid."""
    rows, columns = square(count)
    x = np.linspace(-2, 0.5, columns).astype(dtype)
    y = np.linspace(-1.25, 1.25, rows).astype(dtype)
    return [np.ascontiguousarray(z) for z in np.broadcast_arrays(x, y[:, None])]


def differing(result: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of points that differ: chaos, where compilers round otherwise."""
    return float(np.mean(result != expected))


NO_LOOP = "numexpr has no loops"

WORK = Work(
    "mandelbrot",
    "Mandelbrot set",
    "W10 Mandelbrot set by `gpusched.kernel`, 50 steps",
    plane,
    lambda xp, x, y: with_numpy(x, y),
    chunks=by_squares,
    programs={
        "dask": lambda xp, x, y: xp.map_blocks(with_numpy, x, y, dtype="i8"),
        "gpusched": lambda xp, x, y: kernel()(x, y),
        "jax": jax_program,
        "cupy": masked,
    },
    absent={
        "numexpr": NO_LOOP,
        "dask-numexpr": NO_LOOP,
        "torch": "torch.compile unrolls the loop, and was not done with it after eight minutes",
        "cubed": "map_blocks would run the same NumPy as dask's",
        "cupy-fuse": "cupy.fuse has no loops",
    },
    tolerance=2e-3,
    error=differing,
    exact=True,
)
