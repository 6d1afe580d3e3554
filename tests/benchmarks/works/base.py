"""What a work is: inputs, one program for any library with NumPy's names, and how exact to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.benchmarks import names

Chunks = list[tuple[int, ...]]
"""The length of a chunk along each axis, for each of some arrays."""

_PIECE = 1 << 20
"""Elements that results are compared in at a time, so that temporaries stay in the cache."""


def seeded() -> np.random.Generator:
    """Return a source of random numbers that gives the same ones on every call."""
    return np.random.default_rng(7)


def uniform(shape: tuple[int, ...], dtype: str, low: float = 0, high: float = 1) -> np.ndarray:
    """Return random numbers of that range, the same ones on every call."""
    return (low + (high - low) * seeded().random(shape, dtype="f4")).astype(dtype)


def square(count: int) -> tuple[int, int]:
    """Return the shape of the largest square matrix with at most so many elements."""
    side = int(count**0.5)
    return side, side


def by_rows(arrays: list[np.ndarray], elements: int) -> Chunks:
    """Split the first axis alone, into chunks of about so many elements."""
    return [(max(1, elements * len(x) // x.size), *x.shape[1:]) if x.ndim else () for x in arrays]


def by_squares(arrays: list[np.ndarray], elements: int) -> Chunks:
    """Split matrices into squares of about so many elements."""
    side = int(elements**0.5)
    return [tuple(min(side, length) for length in x.shape) for x in arrays]


def largest_error(result: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error, in units of the result's epsilon times the largest value."""
    found, wanted = np.ravel(result), np.ravel(expected)
    worst, largest = 0.0, np.finfo(found.dtype).tiny
    for start in range(0, found.size, _PIECE):
        piece, true = found[start : start + _PIECE], wanted[start : start + _PIECE]
        known = ~np.isnan(true)
        if not np.array_equal(known, ~np.isnan(piece)):
            return float("inf")
        worst = max(worst, np.abs(piece - true).max(initial=0, where=known))
        largest = max(largest, np.abs(true).max(initial=0, where=known))
    return float(worst / (np.finfo(found.dtype).eps * largest))


@dataclass(frozen=True)
class Work:
    """One thing to compute, and all that is special about computing it somewhere."""

    name: str
    """On the command line."""
    label: str
    """In tables."""
    title: str
    """What it is, in a line."""
    inputs: Callable[[int, str], list[np.ndarray]]
    """`inputs(count, dtype)`: arrays of about `count` elements, the same ones on every call."""
    program: Callable[..., Any]
    """`program(xp, *inputs)`: an array or several, for any namespace with NumPy's names."""
    elements: Mapping[str, int] = field(
        default_factory=lambda: {"float32": 25_000_000, "float64": 25_000_000}
    )
    """Elements by dtype; a dtype that is missing is not measured."""
    chunks: Callable[[list[np.ndarray], int], Chunks] = by_rows
    """How inputs are split into chunks of about so many elements."""
    chunk: int = 4_000_000
    """Elements of a chunk."""
    programs: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Programs for libraries in which the one above cannot be said, by their names."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why libraries are not measured, by their names."""
    tolerance: float = 32
    """Largest error allowed, as `error` measures it."""
    error: Callable[[np.ndarray, np.ndarray], float] = largest_error
    """`error(result, expected)`, for each array of the result."""
    exact: bool = False
    """Whether the dtype decides on the result, so that NumPy's in that dtype is the true one."""
    fused: bool = True
    """Whether gpusched launches kernels; it is an error if it does not."""

    def program_of(self, library: str) -> Callable[..., Any]:
        """Return the program for this library."""
        return self.programs.get(library, self.program)

    def reference(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Return what NumPy computes from these inputs, in float64 unless the dtype decides."""
        if not self.exact:
            inputs = [x.astype("f8") if x.dtype.kind == "f" else x for x in inputs]
        return [np.asarray(x) for x in several(self.program_of("numpy")(names.numpy(), *inputs))]

    def worst(self, results: list[np.ndarray], reference: list[np.ndarray]) -> float:
        """Return the largest error of all results; raises ValueError for another shape."""
        shapes = [[np.shape(x) for x in arrays] for arrays in (results, reference)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"shapes {shapes[0]} instead of {shapes[1]}")
        return max(self.error(x, true) for x, true in zip(results, reference, strict=True))


def several(result: Any) -> list[Any]:
    """Return the arrays of a result that is one array or several."""
    return list(result) if isinstance(result, (tuple, list)) else [result]
