"""Programs of every shape that graphs have, over chunks that exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from gpusched import fusible
from tests.record.gaps import PUSH


def numbers(shape: tuple[int, ...], chunks: Any, dtype: str = "float64", seed: int = 0) -> da.Array:
    """Return an array whose chunks are in memory."""
    values = np.random.default_rng(seed).random(shape).astype(dtype)
    return da.from_array(values, chunks=chunks).persist(scheduler="sync")


def sorted_rows(block: Any) -> Any:
    return np.apply_over_axes(np.sort, block * 3 - 1, 1) * 2 + block


@fusible
def ranked(block: Any) -> Any:
    return np.sort(block * 3 - 1, axis=1) * 2 + block


def slope(z: Any) -> Any:
    dx = (z[1:-1, 2:] - z[1:-1, :-2]) / 2
    dy = (z[2:, 1:-1] - z[:-2, 1:-1]) / 2
    return np.sqrt(dx * dx + dy * dy)


def _chain() -> Any:
    x, y = numbers((60, 40), (20, 20)), numbers((60, 40), (20, 20), seed=1)
    return da.clip(((x + y) * x - y) / 2, 0.1, 0.7)


def _from_array() -> Any:
    return da.from_array(np.arange(1000.0).reshape(50, 20), chunks=(7, 20)) * 3 - 1


def _standardised() -> Any:
    x = numbers((64, 32), (16, 32))
    return (x - x.mean(axis=0)) / x.std(axis=0)


def _overlap() -> Any:
    z = numbers((80, 60), 20)
    return z.map_overlap(slope, depth=1, boundary="reflect", trim=False, dtype="float64") * 2


def _several() -> Any:
    x = numbers((60, 40), (20, 20))
    shared = (x * 2 + 1) ** 2
    return [shared.sum(), shared.max(axis=0), shared[5:] - 1.5]


def with_gaps(x: da.Array) -> da.Array:
    """Return an array without its larger numbers."""
    return da.where(x > 0.5, np.nan, x)


def _unknown_library() -> Any:
    x = numbers((40, 30), (20, 30))
    return (x * 2 + 1).map_blocks(np.sort, axis=1) * 2 - 1


PROGRAMS: dict[str, Callable[[], Any]] = {
    "chain": _chain,
    "from-array": _from_array,
    "sum": lambda: (((numbers((64, 32), 16) - 2) * 2) ** 2).sum(),
    "float32": lambda: da.exp(numbers((64, 32), 16, "float32")) * 2 - 7.5,
    "uneven": lambda: (numbers((95, 31), (20, 13)) + 1.25) * 3,
    "standardised": _standardised,
    "scalars": lambda: (lambda x: (x - x.mean()) / x.std())(numbers((64, 32), 16)),
    "overlap": _overlap,
    "rechunked": lambda: numbers((40, 40), (40, 5)).rechunk((5, 40)) * 2 + 1,
    "transposed": lambda: (lambda x: x + x.T * 2)(numbers((40, 40), 20)),
    "broadcast": lambda: (numbers((40, 30), 20) - numbers((30,), 20)) / 3,
    "sliced": lambda: (numbers((60, 40), 20)[3:, ::2] + 1) * 2,
    "random": lambda: da.random.default_rng(0).random((40, 40), chunks=20) * 2 - 1,
    "created": lambda: (da.ones((40, 40), chunks=20) + da.arange(40, chunks=20)) * 2.5,
    "reduced-on-axes": lambda: (numbers((30, 40, 20), (10, 20, 20)) * 2 - 1).max(axis=(0, 2)),
    "argmax": lambda: (numbers((60, 40), 20) * 2 - 1).argmax(axis=0),
    "unsafe": lambda: (numbers((40, 30), (20, 30)) * 2 + 1).map_blocks(sorted_rows) * 3 - 1,
    "asked-for": lambda: (numbers((40, 30), (20, 30)) * 2 + 1).map_blocks(ranked),
    "library": _unknown_library,
    "single-call": lambda: numbers((40, 30), 20) + 1,
    "complex": lambda: (numbers((40, 30), 20) * 2 + 1).astype("complex128") * 2,
    "longdouble": lambda: (numbers((40, 30), (20, 30)) * 2 + 1).astype(np.longdouble) * 2,
    "several": _several,
    "stacked": lambda: da.stack([numbers((20, 20), 10), numbers((20, 20), 10, seed=1)]) * 2 - 1,
    "where": lambda: (lambda x: da.where(x > 0.5, x * 2, -x).sum(axis=1))(numbers((60, 40), 20)),
    "nan": lambda: da.nanmax(numbers((60, 40), 20) * 2 - 1),
    "places": lambda: da.digitize(numbers((60, 40), 20) * 2 - 1, np.linspace(-3, 3, 9)) * 2,
    "cumulative": lambda: (numbers((60, 40), 20) * 2 - 1).cumsum(axis=0),
    "filled": lambda: with_gaps(numbers((60, 40), 20)).map_blocks(PUSH, 3, 0) * 2,
    "matmul": lambda: (numbers((40, 40), 20) * 2 - 1) @ (numbers((40, 40), 20) + 3),
}
