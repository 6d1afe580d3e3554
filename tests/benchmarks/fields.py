"""Data as people send it: from what nothing shortens to zeros."""

from __future__ import annotations

import functools

import numpy as np

_ZOOM = 4

KINDS = (
    "noise f4", "noise f8", "elevation f4", "elevation f8", "numbers below 1000 i4", "count i8",
    "booleans", "zeros f8", "categories i2",
)  # fmt: skip


def field(kind: str, nbytes: int, seed: int = 0) -> np.ndarray:
    """Return one chunk.

    Parameters
    ----------
    kind
        One of `KINDS`.
    nbytes
        About so many.
    seed
        Another one makes other values of the same kind.

    Returns
    -------
    numpy.ndarray
        In one or two dimensions, contiguous.
    """
    rng = np.random.default_rng(seed)
    *words, dtype = kind.split() if " " in kind else (kind, "?")
    match " ".join(words):
        case "noise":
            return rng.standard_normal(nbytes // int(dtype[1]), dtype)
        case "elevation":
            return _tiled(nbytes // int(dtype[1]), seed).astype(dtype)
        case "numbers below 1000":
            return rng.integers(0, 1000, nbytes // 4, dtype)
        case "count":
            return np.arange(nbytes // 8) + seed * nbytes
        case "booleans":
            return rng.random(nbytes) < 0.3
        case "zeros":
            return np.zeros(nbytes // 8)
        case "categories":
            return np.minimum(rng.geometric(0.2, nbytes // 2), 20).astype(dtype)
    raise ValueError(f"{kind!r}: expected one of {KINDS}")


def _tiled(count: int, seed: int) -> np.ndarray:
    """Return rows of the elevation model, one tile wide, so that no row repeats itself."""
    elevation = _elevation()
    rows = count // elevation.shape[1]
    start = seed * 97 % elevation.shape[0]
    chosen = np.arange(start, start + rows) % elevation.shape[0]
    return np.ascontiguousarray(elevation[chosen])


@functools.cache
def _elevation() -> np.ndarray:
    """Return metres above the sea: matplotlib's Jacksboro fault, between its points linearly."""
    from matplotlib.cbook import get_sample_data

    rows = get_sample_data("jacksboro_fault_dem.npz")["elevation"].astype("f4")
    for _ in range(2):
        places = np.arange(0, rows.shape[1] - 1, 1 / _ZOOM)
        rows = np.stack([np.interp(places, np.arange(rows.shape[1]), row) for row in rows]).T
    return np.ascontiguousarray(rows)
