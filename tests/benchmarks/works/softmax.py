"""Softmax over rows, and the logarithm of their sums of exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, square, uniform


def softmax(xp: Any, x: Any) -> Any:
    """Return both, from what they share."""
    largest = xp.max(x, axis=1, keepdims=True)
    powers = xp.exp(x - largest)
    sums = xp.sum(powers, axis=1, keepdims=True)
    return powers / sums, largest + xp.log(sums)


def logits(count: int, dtype: str) -> list[np.ndarray]:
    return [uniform(square(count), dtype, -8, 8)]


def numexpr_program(evaluate: Callable[..., Any], x: Any) -> Any:
    """Return both: the reductions by NumPy, the rest by strings."""
    largest = x.max(axis=1, keepdims=True)
    powers = evaluate("exp(x - m)", x=x, m=largest)
    sums = powers.sum(axis=1, keepdims=True)
    return evaluate("p / s", p=powers, s=sums), largest + np.log(sums)


WORK = Work(
    "softmax",
    "softmax, log-sum-exp",
    "W6 softmax over rows, and log-sum-exp",
    logits,
    softmax,
    programs={"numexpr": numexpr_program},
    absent={"dask-numexpr": "the reductions would be dask's, the rest two short strings"},
)
