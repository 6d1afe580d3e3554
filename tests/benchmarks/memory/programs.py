"""Programs of data that is larger than memory, each with one number to check it by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np

LABELS = 40
"""xarray gives a group's mean back to its rows in chunks of about so many rows, each of which meets
two bands: with twelve, as for months, there were 15,000 tasks for bands of 83 rows."""

WIDEST = 36_000
"""Columns of a chunk of `groupby` at most. flox joins the sums and counts of four chunks' groups in
a task, which takes their memory twice: with 50,000 columns 98% of 500 MB, the process included."""


@dataclass(frozen=True)
class Sizes:
    """Of one program's data: a square of float64.

    Examples
    --------
    >>> from tests.benchmarks.memory.programs import Sizes
    >>> sizes = Sizes(total=80_000, chunk=8_000)
    >>> sizes.side, sizes.bands().chunksize, sizes.blocks().chunksize
    (100, (10, 100), (31, 31))
    """

    total: int
    """Bytes of all of it."""
    chunk: int
    """Bytes of a chunk, about."""

    @property
    def side(self) -> int:
        """The length of each side."""
        return math.isqrt(self.total // 8)

    @property
    def rows(self) -> int:
        """The rows of a band."""
        return max(1, self.chunk // (8 * self.side))

    def bands(self, seed: int = 0) -> da.Array:
        """Return random rows."""
        return _random((self.side, self.side), (self.rows, self.side), seed)

    def blocks(self, seed: int = 0) -> da.Array:
        """Return random blocks."""
        edge = math.isqrt(self.chunk // 8)
        return _random((self.side, self.side), (edge, edge), seed)

    def tall(self, columns: int, parts: int = 1) -> da.Array:
        """Return random rows of so many columns in each chunk, of which there are `parts`."""
        rows = max(1, self.chunk // (8 * columns))
        width = columns * parts
        return _random((self.total // (8 * width), width), (rows, columns), 0)


def _random(shape: tuple[int, int], chunks: tuple[int, int], seed: int) -> da.Array:
    return da.random.default_rng(seed).random(shape, chunks=chunks)


def rechunk(sizes: Sizes, folder: Path) -> Any:
    """Turn bands of rows into bands of columns."""
    x = sizes.bands().rechunk((sizes.side, sizes.rows), method="tasks")
    return (x / x.max(axis=0)).sum()


def transpose(sizes: Sizes, folder: Path) -> Any:
    """Add an array to its transpose: each block is needed twice, far apart."""
    x = sizes.blocks()
    return (x + x.T).std()


def product(sizes: Sizes, folder: Path) -> Any:
    """Multiply the transpose of a tall matrix by the matrix."""
    x = sizes.tall(256)
    return ((x - x.mean(axis=0)).T @ x).sum()


def overlap(sizes: Sizes, folder: Path) -> Any:
    """Smooth with a stencil across chunks."""
    x = sizes.blocks()
    return x.map_overlap(_smooth, depth=2, boundary="reflect").max()


def _smooth(x: Any) -> Any:
    found = x.copy()
    found[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return found


def groupby(sizes: Sizes, folder: Path) -> Any:
    """Subtract from each row the mean of its group, whose rows are in all chunks."""
    import xarray as xr

    parts = -(-sizes.side // WIDEST)
    bands = sizes.tall(-(-sizes.side // parts), parts)
    labels = np.arange(len(bands)) % LABELS
    x = xr.DataArray(bands, dims=("row", "column"), coords={"label": ("row", labels)})
    groups = x.groupby("label")
    return abs(groups - groups.mean()).mean().data


def standardised(sizes: Sizes, folder: Path) -> Any:
    """Store an array less its mean by its deviation, for which it is needed twice."""
    x = sizes.blocks()
    path = str(folder / "stored.zarr")
    stored = ((x - x.mean()) / x.std()).to_zarr(path, compute=False)
    return dask.delayed(_middle)(path, sizes.side, stored)


def _middle(path: str, side: int, stored: Any) -> float:
    """Return the middle element of what was stored."""
    import zarr

    return float(zarr.open_array(path, mode="r")[side // 2, side // 2])


def histogram(sizes: Sizes, folder: Path) -> Any:
    """Count into bins up to the largest number, which takes two passes."""
    x = sizes.blocks()
    counts, _ = da.histogram(x / x.max(), bins=100, range=(0, 1))
    return (counts * da.arange(100)).sum()


def reductions(sizes: Sizes, folder: Path) -> Any:
    """Reduce an array in many ways at once."""
    x = sizes.blocks()
    found = [x.sum(), x.max(), x.std(axis=0), (x - x.mean()).max(), (x.T * x).sum(axis=1)]
    return dask.delayed(_total)(found)


def _total(found: list[Any]) -> float:
    return float(sum(np.sum(each) for each in found))


def concatenate(sizes: Sizes, folder: Path) -> Any:
    """Put eight arrays side by side, and use rows that go across all of them."""
    parts = [Sizes(sizes.total // 8, sizes.chunk // 8).bands(seed) for seed in range(8)]
    x = da.concatenate(parts, axis=1).rechunk({1: -1})
    return (x / x.sum(axis=1, keepdims=True)).max()


PROGRAMS: dict[str, Callable[[Sizes, Path], Any]] = {
    each.__name__: each
    for each in (
        rechunk, transpose, product, overlap, groupby, standardised, histogram, reductions,
        concatenate,
    )
}  # fmt: skip
"""Each makes a collection or a delayed number; its folder is for what it stores."""
