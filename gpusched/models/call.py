"""What each task does: a model called on the rows of its chunks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod
from typing import Any

import numpy as np
from dask.layers import ArrayBlockwiseDep

from gpusched.models.base import Model
from gpusched.models.errors import ModelError
from gpusched.models.outputs import Outputs
from gpusched.models.views import is_cupy
from gpusched.models.weights import Loaded, Weights
from gpusched.placed import mover

FEW = 16
"""Rows that pieces have at least which nobody asked for.

Of a single row some models drop the axis.
"""


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
    tasks: int = 1
    """How many chunks of rows there are."""

    @property
    def __name__(self) -> str:
        return f"apply-{self.name}"

    @property
    def __gpusched_library__(self) -> str:
        return self.library

    def __dask_tokenize__(self) -> Any:
        from dask.base import tokenize

        return tokenize(*(getattr(self, field) for field in self.__dataclass_fields__))

    def __gpusched_takes_cupy__(self, weights: Any, *_: Any) -> bool:
        """Return whether the model computes with what a worker keeps on its GPU."""
        if mover() is None or not isinstance(weights, Weights):
            return False
        with suppress(Exception):  # The call raises it again, and says where.
            return weights.loaded().model.on_gpu
        return False

    def __call__(self, weights: Weights, place: Place, *chunks: Any) -> Any:
        """Return the model's results for the rows of the chunks of one task."""
        try:
            loaded = weights.loaded()
            with loaded.model.sharing(self.tasks):
                return self._compute(loaded, [_single(chunk) for chunk in chunks])
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
        """Return the results for all rows, computed piece by piece where that is wanted."""
        assert self.outputs is not None
        model, rows, like = loaded.model, len(arrays[0]), arrays[0]
        bounds = self._bounds(model, arrays)
        if bounds == [0, rows] and model.rows in (None, rows):
            return self.outputs.check(self.run(loaded, arrays), model, like, rows, self.converts)
        empty = _cupy_empty if is_cupy(like) else np.empty
        whole = [empty((rows, *meta.shape[1:]), meta.dtype) for meta in self.outputs.metas]
        for start, end in pairwise(bounds):
            piece = _filled([array[start:end] for array in arrays], model.rows)
            found = self.outputs.check(
                self.run(loaded, piece), model, like, len(piece[0]), self.converts
            )
            for target, part in zip(whole, found, strict=True):
                target[start:end] = part[: end - start]
        return whole

    def _bounds(self, model: Model, arrays: list[Any]) -> list[int]:
        """Return where pieces of rows begin, and the end of the last."""
        rows = len(arrays[0])
        size = model.rows or self.batch
        if size is None and model.piece is not None and self._is_plain():
            count = ceil(sum(array.nbytes for array in arrays) / model.piece)
            count = max(1, min(count, rows // FEW))
            return [rows * number // count for number in range(count + 1)] if rows else [0]
        return [*range(0, rows, size or max(rows, 1)), rows]

    def _is_plain(self) -> bool:
        """Return whether no other argument can hold something for each row of a chunk."""
        return all(np.isscalar(value) or value is None for value in self.kwargs.values())

    def run(self, loaded: Loaded, arrays: list[Any]) -> Any:
        """Return what the model gives for arrays of rows, under its library's policy.

        Raises `TypeError` if the arrays are of other dtypes than the model's, and are not to be
        converted.
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

    Raises `ModelError` for masked arrays and others whose meaning a model would lose.
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


def _filled(arrays: list[Any], fixed: int | None) -> list[Any]:
    """Return the rows of a piece, the last repeated where a model wants a fixed number."""
    rows = len(arrays[0])
    if fixed is None or rows == fixed:
        return arrays
    return [array[np.minimum(np.arange(fixed), rows - 1)] for array in arrays]


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
        """Return one of the results."""
        return results[self.key]
