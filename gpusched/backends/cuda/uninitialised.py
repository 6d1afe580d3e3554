"""Memory that shows where nobody has written."""

from __future__ import annotations

import numpy as np


def uninitialised(size: int, dtype: np.dtype) -> np.ndarray:
    """Return an array of values that spoil a result: NaN, or large numbers of both signs."""
    if dtype.kind in "fc":
        return np.full(size, np.nan, dtype)
    if dtype.kind == "b":
        return np.arange(size) % 2 == 0
    limits = np.iinfo(dtype)
    return np.where(np.arange(size) % 2, limits.max, limits.min).astype(dtype)
