"""A cheap elementwise chain, bound by memory when it is one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, seeded


def clip_chain(xp: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the chain's result, between 0 and 1."""
    return xp.clip(((a + b) * c - a) / 2, 0, 1)


def triples(count: int, dtype: str) -> list[np.ndarray]:
    """Return three arrays of numbers between -1 and 1."""
    random = seeded()
    return [(2 * random.random(count, dtype="f4") - 1).astype(dtype) for _ in range(3)]


def numexpr_program(evaluate: Callable[..., Any], a: Any, b: Any, c: Any) -> Any:
    """Return the same by one string."""
    chain = "(((a + b) * c - a) * half)"
    text = f"where({chain} < zero, zero, where({chain} > one, one, {chain}))"
    return evaluate(text, a=a, b=b, c=c, half=0.5, zero=0.0, one=1.0)


WORK = Work(
    "clip",
    "clipped arithmetic",
    "W2 clip(((a + b) * c - a) / 2, 0, 1)",
    triples,
    clip_chain,
    elements={"float32": 96_000_000, "float64": 64_000_000},
    chunk=16_000_000,
    programs={"numexpr": numexpr_program},
    tolerance=8,
)
