"""Ten steps of heat conduction: a five-point stencil, and neighbours' edges between the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, by_squares
from tests.benchmarks.works.sums import matrix

STEPS, RATE = 10, 0.2


def step(u: Any) -> Any:
    """Return the next temperatures of all cells but those at the edge."""
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return u[1:-1, 1:-1] + RATE * (around - 4 * u[1:-1, 1:-1])


def padded(xp: Any, u: Any) -> Any:
    """Run on a library with NumPy's `pad`."""
    for _ in range(STEPS):
        u = step(xp.pad(u, 1, mode="edge"))
    return u


def overlapping(xp: Any, u: Any, each: Callable[[Any], Any] = step) -> Any:
    """Run on dask."""
    options = {"depth": 1, "boundary": "nearest", "trim": False}
    for _ in range(STEPS):
        u = xp.map_overlap(each, u, chunks=u.chunks, dtype=u.dtype, meta=u._meta, **options)
    return u


def numexpr_step(evaluate: Callable[..., Any], u: Any) -> Any:
    """Return one step by one string."""
    return evaluate(
        "c + rate * (n + s + w + e - four * c)",
        c=u[1:-1, 1:-1], n=u[:-2, 1:-1], s=u[2:, 1:-1], w=u[1:-1, :-2], e=u[1:-1, 2:],
        rate=RATE, four=4.0,
    )  # fmt: skip


def numexpr_program(evaluate: Callable[..., Any], u: Any) -> Any:
    for _ in range(STEPS):
        u = numexpr_step(evaluate, np.pad(u, 1, mode="edge"))
    return u


def dask_numexpr_program(evaluate: Callable[..., Any], xp: Any, u: Any) -> Any:
    return overlapping(xp, u, lambda chunk: numexpr_step(evaluate, chunk))


WORK = Work(
    "heat",
    "heat equation",
    "W5 ten heat steps, five-point stencil with `map_overlap`",
    matrix,
    padded,
    chunks=by_squares,
    programs={
        "dask": overlapping,
        "numexpr": numexpr_program,
        "dask-numexpr": dask_numexpr_program,
    },
    absent={"cubed": "its map_overlap knows only constants beyond the edge"},
    tolerance=64,
)
