"""Reductions: of a cheap chain to one number, and mean and deviation along each axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, by_squares, square, uniform
from tests.benchmarks.works.clip import triples


def square_sum(xp: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the sum of the squares of a cheap chain."""
    return xp.sum(((a - b) * c) ** 2)


def square_sum_numexpr(evaluate: Callable[..., Any], a: Any, b: Any, c: Any) -> Any:
    """Return the same; numexpr's own sum adds float32 in sequence, so NumPy adds."""
    return evaluate("((a - b) * c) ** 2", a=a, b=b, c=c).sum()


def square_sum_blocks(evaluate: Callable[..., Any], xp: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the same, block by block on dask."""

    def block(*chunks: Any) -> Any:
        a, b, c = chunks
        return evaluate("((a - b) * c) ** 2", a=a, b=b, c=c)

    return xp.map_blocks(block, a, b, c, dtype=a.dtype).sum()


def statistics(xp: Any, x: Any) -> Any:
    """Return mean and standard deviation of columns, then of rows."""
    return tuple(function(x, axis=axis) for axis in (0, 1) for function in (xp.mean, xp.std))


def matrix(count: int, dtype: str) -> list[np.ndarray]:
    """Return a square matrix of numbers between 0 and 1."""
    return [uniform(square(count), dtype)]


NO_AXES = "numexpr has neither means nor deviations"

SQUARE_SUM = Work(
    "square-sum",
    "sum of squares",
    "W3 sum(((a - b) * c) ** 2)",
    triples,
    square_sum,
    elements={"float32": 96_000_000, "float64": 64_000_000},
    chunk=16_000_000,
    programs={"numexpr": square_sum_numexpr, "dask-numexpr": square_sum_blocks},
    tolerance=16384,
)
STATISTICS = Work(
    "axis-statistics",
    "statistics along each axis",
    "W3 mean and standard deviation along each axis of a matrix",
    matrix,
    statistics,
    elements={"float32": 64_000_000, "float64": 64_000_000},
    chunk=16_000_000,
    chunks=by_squares,
    absent={"numexpr": NO_AXES, "dask-numexpr": NO_AXES},
    tolerance=4096,
)
