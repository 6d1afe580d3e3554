"""What a user gives to be debugged -> one array, one of its chunks, and an element in that."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from dask.array import Array
from dask.base import is_dask_collection

from gpusched.inspection.places import variable_of_layer
from gpusched.inspection.stages import title
from gpusched.quantities import count

Index = tuple[int, ...]


@dataclass(frozen=True)
class Spot:
    """A chunk of an array, or an element in it."""

    key: Any
    """dask's, of the chunk."""
    chunk: Index
    """Position among the array's chunks."""
    local: Index | None = None
    """Position in the chunk; None for the whole of it."""
    index: Index | None = None
    """Position in the array."""


class Subject:
    """A dask array that is looked into.

    Raises `TypeError` if it is neither.

    Parameters
    ----------
    x
        A dask array, or an xarray DataArray of one.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched.debugging.subject import Subject
    >>> spot = Subject(da.ones((10, 4), chunks=(4, 4))).at((-1, 2))
    >>> spot.chunk, spot.local, spot.index
    ((2, 0), (1, 2), (9, 2))
    """

    def __init__(self, x: Any) -> None:
        self.array = _array_of(x)

    @property
    def name(self) -> str:
        """The user's variable, or dask's name without its digest."""
        return name_of_layer(self.array.name)

    def spot(self, index: Any, chunk: Any) -> Spot:
        """Return what an index or a chunk means, of which one is None.

        Raises `TypeError`, `IndexError` or `ValueError` if neither or both are given, or it is not
        in the array.
        """
        if (index is None) == (chunk is None):
            raise TypeError(
                "give index=, the position of an element (() for an array without axes), or "
                "chunk=, the position of a chunk; "
                + ("neither is given" if index is None else "both are given")
            )
        return self.at(index) if chunk is None else self.whole(chunk)

    def at(self, index: Any) -> Spot:
        """Return the place of an element; negative numbers count from the end."""
        self._check_known()
        wanted = self._checked("index", index, self.array.shape)
        chunk, local = [], []
        for position, lengths in zip(wanted, self.array.chunks, strict=True):
            ends = list(accumulate(lengths))
            which = next(k for k, end in enumerate(ends) if position < end)
            chunk.append(which)
            local.append(position - ends[which] + lengths[which])
        return Spot((self.array.name, *chunk), tuple(chunk), tuple(local), wanted)

    def whole(self, chunk: Any) -> Spot:
        """Return the place of a chunk; negative numbers count from the end."""
        wanted = self._checked("chunk", chunk, self.array.numblocks)
        return Spot((self.array.name, *wanted), wanted)

    def _check_known(self) -> None:
        if any(n != n for n in self.array.shape):
            raise ValueError(
                f"the chunks of {self.name} have lengths that dask does not know, so that no "
                "index can be found; give chunk=, or call compute_chunk_sizes() on the array first"
            )

    def _checked(self, what: str, given: Any, lengths: Index) -> Index:
        try:
            items = tuple(map(operator.index, given if _is_sequence(given) else (given,)))
        except TypeError:
            raise TypeError(
                f"{what}={given!r}: whole numbers are needed, one for each axis"
            ) from None
        if len(items) != len(lengths):
            raise IndexError(
                f"{what}={given!r} has {count(len(items), 'number')}; {self.name} has "
                f"{count(len(lengths), 'axis', 'axes')}"
            )
        for axis, (item, length) in enumerate(zip(items, lengths, strict=True)):
            if not -length <= item < length:
                counted = (
                    f"is {length} long" if what == "index" else f"has {count(length, 'chunk')}"
                )
                raise IndexError(
                    f"{what}={given!r} is out of bounds: axis {axis} of {self.name} {counted}"
                )
        pairs = zip(items, lengths, strict=True)
        return tuple(item + length if item < 0 else item for item, length in pairs)


def _is_sequence(given: Any) -> bool:
    # An array of positions is what np.argwhere has for each element.
    return isinstance(given, tuple | list) or (isinstance(given, np.ndarray) and given.ndim == 1)


def _array_of(x: Any) -> Array:
    # Delayed objects have every attribute, but their class does not.
    data = x.data if hasattr(type(x), "data") and not isinstance(x, Array) else x
    if isinstance(data, Array):
        return data
    kind = type(x).__name__
    if hasattr(type(x), "data_vars"):
        names = ", ".join(map(repr, list(x.data_vars)[:5]))
        raise TypeError(f"one array is looked into, not a {kind}; choose one of its {names}")
    if is_dask_collection(x):
        raise TypeError(f"only arrays are looked into; this is a {kind} of dask's")
    if isinstance(x, list | tuple):
        raise TypeError(f"one array is looked into, not a {kind} of {len(x)}")
    raise TypeError(f"only dask arrays are looked into; this {kind} is not computed by tasks")


def name_of_layer(layer: str) -> str:
    """Return the user's variable for an array of dask's, or its name without the digest."""
    return variable_of_layer(layer) or title(layer)
