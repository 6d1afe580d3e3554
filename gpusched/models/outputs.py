"""What a model gives for a number of rows: one array or several, their dtypes and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusched.models.base import Model
from gpusched.models.errors import ModelError

_HINT = (
    "pass meta=, an array of no rows such as np.empty((0, 10), 'float32'), or a tuple or "
    "dictionary of them; or dtype= and shape="
)


@dataclass(frozen=True)
class Outputs:
    """The arrays that a model gives, as arrays of no rows."""

    keys: tuple[Any, ...] | None
    """Names or positions of several arrays; None for a single one."""
    metas: tuple[np.ndarray, ...]
    """One for each array, with one axis for the rows and those of one row's result."""

    def check(self, found: Any, model: Model, like: Any, rows: int, converts: bool) -> list[Any]:
        """Return the arrays that a model gave for so many rows.

        Raises `ModelError` if they are not as many, or not of such shapes and dtypes, as they
        should be.

        Parameters
        ----------
        found
            What it gave, as its library has it.
        like
            An array that was given to it.
        converts
            Whether results are converted to the wanted dtypes.
        """
        keys, values = split(found)
        if keys != self.keys:
            raise ModelError(f"the model gave {_told(keys)}, and should give {_told(self.keys)}")
        arrays = [
            as_array(model, value, like, meta.dtype if converts else None)
            for value, meta in zip(values, self.metas, strict=True)
        ]
        for array, meta in zip(arrays, self.metas, strict=True):
            expected = (rows, *meta.shape[1:])
            if array.shape != expected:
                raise ModelError(
                    f"the model gave an array of shape {array.shape} for {rows} rows, where "
                    f"{expected} was expected: it must give one result for each row"
                )
        return [_of(array, meta.dtype, converts) for array, meta in zip(arrays, self.metas,
                                                                        strict=True)]  # fmt: skip


def _of(array: Any, dtype: np.dtype, converts: bool) -> Any:
    if array.dtype == dtype:
        return array
    if not converts:
        raise ModelError(f"the model gave {array.dtype}, where {dtype} was expected")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ModelError(f"the model gave {array.dtype}, which dtype={str(dtype)!r} would cut off")
    return array.astype(dtype)


def _told(keys: tuple[Any, ...] | None) -> str:
    if keys is None:
        return "one array"
    return f"{len(keys)} arrays" + (f" {list(keys)}" if keys and keys != _counted(keys) else "")


def _counted(keys: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(range(len(keys)))


def split(found: Any) -> tuple[tuple[Any, ...] | None, list[Any]]:
    """Return the keys and the values of several results, or no keys and a single one.

    Examples
    --------
    >>> from gpusched.models.outputs import split
    >>> split({"a": 1, "b": 2}), split((1, 2)), split(1)
    ((('a', 'b'), [1, 2]), ((0, 1), [1, 2]), (None, [1]))
    """
    if isinstance(found, Mapping):
        return tuple(found), list(found.values())
    if isinstance(found, tuple | list):
        return tuple(range(len(found))), list(found)
    return None, [found]


def as_array(model: Model, value: Any, like: Any, dtype: np.dtype | None) -> Any:
    """Return one result as an array."""
    try:
        return model.array(value, like, dtype)
    except TypeError as error:
        raise ModelError(f"the model gave {error}") from error


def of_sample(found: Any, model: Model, like: Any, rows: int, dtype: Any) -> Outputs:
    """Return what the result for a few rows shows.

    Raises `ModelError` if it has not as many rows.
    """
    keys, values = split(found)
    dtypes = _dtypes(dtype, keys)
    metas = []
    for value, wanted in zip(values, dtypes, strict=True):
        array = as_array(model, value, like, wanted)
        if array.ndim == 0 or array.shape[0] != rows:
            raise ModelError(
                f"the model gave an array of shape {array.shape} for {rows} rows, and must give "
                "one result for each row. If it does for other input, "
                f"{_HINT}; if it computes with whole chunks, use map_blocks"
            )
        metas.append(np.empty((0, *array.shape[1:]), wanted or array.dtype))
    return Outputs(keys, tuple(metas))


def _dtypes(dtype: Any, keys: tuple[Any, ...] | None) -> list[np.dtype | None]:
    """Return the wanted dtype of each result."""
    if keys is not None and isinstance(dtype, tuple | list | dict):
        given = dtype if isinstance(dtype, dict) else dict(enumerate(dtype))
        if set(given) != set(keys):
            raise ValueError(f"dtype={dtype!r} does not fit the results {list(keys)}")
        return [np.dtype(given[key]) for key in keys]
    wanted = None if dtype is None else np.dtype(dtype)
    return [wanted] * (1 if keys is None else len(keys))


def declared(meta: Any, dtype: Any, shape: Any) -> Outputs | None:
    """Return what the user says of the results; None where a sample must.

    Raises `ValueError` if that is not enough, or too much.
    """
    if meta is not None:
        if dtype is not None or shape is not None:
            raise ValueError("meta has dtypes and shapes: leave out dtype and shape")
        keys, values = split(meta)
        return Outputs(keys, tuple(_no_rows(value) for value in values))
    if shape is None:
        return None
    if dtype is None:
        raise ValueError("shape is that of one row's result, and needs dtype beside it")
    return Outputs(None, (np.empty((0, *_sizes(shape)), dtype),))


def _sizes(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _no_rows(value: Any) -> np.ndarray:
    if not hasattr(value, "shape") or not hasattr(value, "dtype") or not value.shape:
        raise ValueError(f"meta is {value!r:.100}: {_HINT}")
    return np.empty((0, *value.shape[1:]), value.dtype)


HINT = _HINT
"""How to declare what a model gives."""
