"""What is measured: three works, their inputs, and the results everybody must agree with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

RATE = 0.03
VOLATILITY = 0.25
SQRT_2_OVER_PI = 0.7978845608028654

_PIECE = 1 << 20
"""Elements that the reference is computed in at a time, so that its temporaries stay small."""


def normal_cdf(xp: ModuleType, x: Any) -> Any:
    """Return the normal distribution function by Page's tanh form, to about 2e-4.

    E. Page, "Approximations to the cumulative normal function and its inverse for use on a
    pocket calculator", Applied Statistics 26 (1977) 75-76.
    """
    return 0.5 * (1.0 + xp.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def black_scholes(xp: ModuleType, spot: Any, strike: Any, years: Any) -> Any:
    """Return the price of European calls."""
    spread = VOLATILITY * xp.sqrt(years)
    d1 = (xp.log(spot / strike) + (RATE + 0.5 * VOLATILITY**2) * years) / spread
    d2 = d1 - spread
    return spot * normal_cdf(xp, d1) - strike * xp.exp(-RATE * years) * normal_cdf(xp, d2)


def clip_chain(xp: ModuleType, a: Any, b: Any, c: Any) -> Any:
    """Return a cheap elementwise chain, bound by memory when it is one kernel."""
    return xp.clip(((a + b) * c - a) / 2, 0, 1)


def square_sum(xp: ModuleType, a: Any, b: Any, c: Any) -> Any:
    """Return the sum of a cheap elementwise chain."""
    return (((a - b) * c) ** 2).sum()


@dataclass(frozen=True)
class Work:
    """One thing to compute from three equally long arrays."""

    name: str
    function: Callable[..., Any]
    """`function(xp, a, b, c)`, for any namespace with NumPy's names."""
    ranges: tuple[tuple[float, float], ...]
    """The bounds that each input is drawn between, uniformly."""
    reduces: bool
    """Whether the result is one number rather than an array."""
    tolerance: float
    """Largest error allowed, in units of the dtype's epsilon times the largest result."""

    def inputs(self, count: int, dtype: str) -> list[np.ndarray]:
        """Return the inputs: `count` elements each, the same ones on every call."""
        random = np.random.default_rng(7)
        return [
            (low + (high - low) * random.random(count, dtype="f4")).astype(dtype)
            for low, high in self.ranges
        ]

    def reference(self, inputs: list[np.ndarray]) -> np.ndarray:
        """Return what NumPy computes in float64 from these inputs."""
        pieces = [
            self.function(np, *(x[start : start + _PIECE].astype("f8") for x in inputs))
            for start in range(0, len(inputs[0]), _PIECE)
        ]
        return np.sum(pieces) if self.reduces else np.concatenate(pieces)

    def error(self, result: np.ndarray, reference: np.ndarray) -> float:
        """Return the largest error, in units of `result`'s epsilon times the largest result."""
        if np.shape(result) != np.shape(reference):
            raise ValueError(f"shape {np.shape(result)} instead of {np.shape(reference)}")
        scale = np.finfo(result.dtype).eps * np.abs(reference).max()
        return float(np.abs(result - reference).max() / scale)


WORKS = {
    work.name: work
    for work in (
        Work(
            "black-scholes",
            black_scholes,
            ranges=((10.0, 100.0), (10.0, 100.0), (0.1, 2.0)),
            reduces=False,
            tolerance=32,
        ),
        Work("clip", clip_chain, ranges=((-1, 1),) * 3, reduces=False, tolerance=8),
        Work("square-sum", square_sum, ranges=((-1, 1),) * 3, reduces=True, tolerance=4096),
    )
}
