"""What each task does: a model called on the rows of its chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from dask.layers import ArrayBlockwiseDep

from gpusched.models.base import Model
from gpusched.models.errors import ModelError
from gpusched.models.outputs import Outputs
from gpusched.models.views import is_cupy
from gpusched.models.weights import Loaded, Weights


@dataclass(frozen=True)
class Place:
    """Which chunk a task computes, for messages."""

    index: tuple[int, ...]
    """Its number along each axis of rows."""


class Places(ArrayBlockwiseDep):
    """Gives each task its place.

    Not as a tuple of numbers, which would be part of the task's program, and each chunk would have
    a program of its own.
    """

    def __getitem__(self, index: tuple[int, ...]) -> Place:
        return Place(tuple(index))

    def __dask_tokenize__(self) -> Any:
        return "gpusched.Places", self.chunks


@dataclass(frozen=True, eq=False)
class Call:
    """The function of the tasks: takes a model, a place and chunks."""

    name: str
    """Of the model."""
    library: str
    """Which computes it, for `gpusched.explain`."""
    method: str | None
    kwargs: dict[str, Any]
    cast: bool | np.dtype
    """Whether inputs are converted to what the model takes; or to what."""
    batch: int | None
    """Rows that the model is given at most at a time."""
    core: tuple[int, ...]
    """Number of axes of a row, for each array."""
    outputs: Outputs | None = None
    """What the model gives; None while that is not known."""
    converts: bool = False
    """Whether results are converted to the dtypes of `outputs`."""
    copies: bool = False
    """Whether the model is given copies, because it writes to its input."""

    @property
    def __name__(self) -> str:
        return f"apply-{self.name}"

    @property
    def __gpusched_library__(self) -> str:
        return self.library

    def __dask_tokenize__(self) -> Any:
        from dask.base import tokenize

        return tokenize(*(getattr(self, field) for field in self.__dataclass_fields__))

    def __call__(self, weights: Weights, place: Place, *chunks: Any) -> Any:
        try:
            return self._compute(weights.loaded(), [_single(chunk) for chunk in chunks])
        except Exception as error:
            error.add_note(f"gpusched: in the model {self.name}, chunk {place.index}")
            raise

    def _compute(self, loaded: Loaded, chunks: list[Any]) -> Any:
        assert self.outputs is not None
        loops = chunks[0].shape[: chunks[0].ndim - self.core[0]]
        arrays = [
            plain(chunk).reshape(prod(loops), *chunk.shape[chunk.ndim - core :])
            for chunk, core in zip(chunks, self.core, strict=True)
        ]
        results = [array.reshape(*loops, *array.shape[1:]) for array in self._rows(loaded, arrays)]
        if self.outputs.keys is None:
            return results[0]
        return dict(zip(self.outputs.keys, results, strict=True))

    def _rows(self, loaded: Loaded, arrays: list[Any]) -> list[Any]:
        """Return the results for all rows, computed piece by piece where there is a limit."""
        assert self.outputs is not None
        model, rows, like = loaded.model, len(arrays[0]), arrays[0]
        size = self._limit(model, rows)
        if size == rows > 0:
            return self.outputs.check(self.run(loaded, arrays), model, like, rows, self.converts)
        empty = _cupy_empty if is_cupy(like) else np.empty
        whole = [empty((rows, *meta.shape[1:]), meta.dtype) for meta in self.outputs.metas]
        for start, piece, kept in _pieces(arrays, size, model.rows):
            found = self.outputs.check(
                self.run(loaded, piece), model, like, len(piece[0]), self.converts
            )
            for target, part in zip(whole, found, strict=True):
                target[start : start + kept] = part[:kept]
        return whole

    def _limit(self, model: Model, rows: int) -> int:
        if model.rows is not None:
            return model.rows
        return min(self.batch or rows, rows)

    def run(self, loaded: Loaded, arrays: list[Any]) -> Any:
        """Return what the model gives for arrays of rows, under its library's policy.

        Raises
        ------
        TypeError
            If the arrays are of other dtypes than the model's, and are not to be converted.
        """
        if isinstance(self.cast, np.dtype):
            arrays = [array.astype(self.cast, copy=False) for array in arrays]
        for number, array in enumerate(arrays):
            wanted = loaded.model.mismatch(number, array.dtype)
            if wanted and self.cast is not True:
                raise TypeError(
                    f"the model {self.name} takes {wanted}, and was given {array.dtype}: pass "
                    f"cast=True, or convert with astype({wanted!r})"
                )
        if self.copies:
            arrays = [array.copy() for array in arrays]
        return loaded.run(self.method, arrays, self.kwargs, self.cast is True, self.copies)


def _single(chunk: Any) -> Any:
    """Return a chunk out of the lists that dask puts it in for axes that end here."""
    while isinstance(chunk, list):
        (chunk,) = chunk
    return chunk


def plain(chunk: Any) -> Any:
    """Return a chunk that models can take.

    Raises
    ------
    ModelError
        For masked arrays and others whose meaning a model would lose.
    """
    if isinstance(chunk, np.memmap):
        return np.asarray(chunk)
    if type(chunk) is np.ndarray or is_cupy(chunk):
        return chunk
    raise ModelError(
        f"chunks are {type(chunk).__module__}.{type(chunk).__qualname__}, and models take plain "
        "NumPy or CuPy arrays: convert first, as with map_blocks(np.ma.filled) or "
        "map_blocks(lambda x: x.todense())"
    )


def _pieces(
    arrays: list[Any], size: int, fixed: int | None
) -> Iterator[tuple[int, list[Any], int]]:
    """Yield (first row, arrays, rows that count); the last row is repeated up to `fixed`."""
    rows = len(arrays[0])
    for start in range(0, rows, size or 1):
        piece = [array[start : start + size] for array in arrays]
        kept = len(piece[0])
        if fixed is not None and kept < fixed:
            piece = [array[np.minimum(np.arange(fixed), kept - 1)] for array in piece]
        yield start, piece, kept


def _cupy_empty(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    import cupy

    return cupy.empty(shape, dtype)


@dataclass(frozen=True)
class Part:
    """Takes one of several results; not `operator.getitem`, which would be recorded."""

    key: Any
    """Its name or position."""
    library: str
    """Which has computed it."""

    @property
    def __name__(self) -> str:
        return f"part-{self.key}"

    @property
    def __gpusched_library__(self) -> str:
        return self.library

    def __call__(self, results: dict[Any, Any]) -> Any:
        return results[self.key]
