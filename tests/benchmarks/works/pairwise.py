"""Distances of all pairs of points: broadcast to three dimensions, and reduced to two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Chunks, Work, seeded, square

DIMENSIONS = 8


def distances(xp: Any, a: Any, b: Any) -> Any:
    """Return the distance of each point of `a` to each of `b`."""
    return xp.sqrt(xp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=2))


def points(count: int, dtype: str) -> list[np.ndarray]:
    """Return two lists of points that have so many pairs."""
    random, rows = seeded(), square(count)[0]
    return [random.random((rows, DIMENSIONS), dtype="f4").astype(dtype) for _ in range(2)]


def split(arrays: list[np.ndarray], elements: int) -> Chunks:
    """Split the points so that a chunk of distances has about so many elements."""
    return [(min(len(x), int(elements**0.5)), DIMENSIONS) for x in arrays]


def numexpr_program(evaluate: Callable[..., Any], a: Any, b: Any) -> Any:
    """Return the same by one string: numexpr adds along an axis."""
    total = evaluate("sum((a - b) ** 2, axis=2)", a=a[:, None, :], b=b[None, :, :])
    return evaluate("sqrt(t)", t=total)


WORK = Work(
    "pairwise",
    "pairwise distances",
    f"W8 distances of all pairs of points with {DIMENSIONS} coordinates",
    points,
    distances,
    chunks=split,
    chunk=1_000_000,
    programs={"numexpr": numexpr_program},
    absent={"dask-numexpr": "a sum along an axis needs more than one string a block"},
)
