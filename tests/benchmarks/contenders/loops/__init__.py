"""The works as one writes them with numba: parallel loops over whole arrays, one file a subject.

Each function takes a work's inputs and returns newly allocated results. Constants get the dtype of
the arrays, since a literal would make float32 double.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

LOOPS = {
    "black-scholes-tanh": "options:with_tanh",
    "black-scholes-erf": "options:with_erf",
    "clip": "chains:clip",
    "square-sum": "chains:square_sum",
    "axis-statistics": "columns:statistics",
    "standardise": "columns:standardise",
    "heat": "stencils:heat",
    "softmax": "rows:softmax",
    "terrain": "stencils:terrain",
    "pairwise": "rows:pairwise",
    "dense": "rows:dense",
    "mandelbrot": "chains:mandelbrot",
    "climate": "columns:climate",
}
"""File and function in this folder, by work."""


def load(work: str) -> Callable[..., Any]:
    """Return the function for a work."""
    file, name = LOOPS[work].split(":")
    function: Callable[..., Any] = getattr(importlib.import_module(f"{__name__}.{file}"), name)
    return function
