"""Arrays with gaps, and what fills them: loops by definition, and as the libraries' functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.record.fills import Filling

RANDOM = np.random.default_rng(11)


def gaps(*shape: int, dtype: str = "f8", share: float = 0.6) -> np.ndarray:
    """Return numbers, many of which are NaN, of either sign."""
    found = RANDOM.normal(size=shape)
    found[RANDOM.random(shape) < share] = np.nan
    found[RANDOM.random(shape) < 0.1] = -np.nan
    found[RANDOM.random(shape) < 0.02] = np.inf
    return found.astype(dtype)


def push(a: np.ndarray, n: int | None = None, axis: int = -1) -> np.ndarray:
    """Return what bottleneck's function of that name gives, element by element."""
    found = np.array(a)
    rows = np.moveaxis(found, axis, 0)[..., np.newaxis]
    last, where = np.full(rows.shape[1:], np.nan, a.dtype), np.zeros(rows.shape[1:], int)
    for k, row in enumerate(rows):
        number = ~np.isnan(row)
        last[number], where[number] = row[number], k
        near = ~number & (k - where <= (len(rows) if n is None else n))
        row[near] = last[near]
    return found


def nanlast(values: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
    """Return what xarray's function of that name gives."""
    found: np.ndarray = push(values, None, axis).take([-1] if keepdims else -1, axis)
    return found


PUSH: Any = Filling(push, "bottleneck.push")
LAST: Any = Filling(nanlast, "xarray last")
