"""Columns brought to mean 0 and deviation 1: two passes over the data, with a barrier between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.benchmarks.works.base import Work
from tests.benchmarks.works.sums import matrix


def standardise(xp: Any, x: Any) -> Any:
    """Return the columns, standardised."""
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)


def numexpr_program(evaluate: Callable[..., Any], x: Any) -> Any:
    """Return the same: the statistics by NumPy, the rest by one string."""
    return evaluate("(x - m) / s", x=x, m=x.mean(axis=0), s=x.std(axis=0))


WORK = Work(
    "standardise",
    "standardised columns",
    "W4 (x - x.mean(axis=0)) / x.std(axis=0)",
    matrix,
    standardise,
    programs={"numexpr": numexpr_program},
    absent={"dask-numexpr": "the statistics would be dask's, the rest one short string"},
    tolerance=4096,
)
