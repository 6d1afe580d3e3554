"""What was saved: an array, or containers and xarray objects of arrays, as data."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.base import is_dask_collection

from gpusched.saving.errors import UnsavableError
from gpusched.saving.values import Decoder, Encoder, index
from gpusched.serialization.frames import CorruptFrameError

_LONGEST = 1 << 62
"""Elements along an axis; sums of a few stay below NumPy's largest number."""
_MOST_DIMENSIONS = 64
"""As NumPy has it."""


@dataclass(frozen=True)
class Described:
    """A dask array without its graph."""

    name: str
    chunks: tuple[tuple[Any, ...], ...]
    """Elements per chunk along each axis; NaN where that is unknown."""
    dtype: np.dtype
    meta: Any
    """An empty array of the chunks' type; None for NumPy's."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the array, as the sums of its chunks."""
        return tuple(sum(sizes) for sizes in self.chunks)

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many chunks there are along each axis."""
        return tuple(map(len, self.chunks))

    def empty(self) -> Any:
        """Return an empty array of the chunks' type."""
        return np.empty((0,) * len(self.chunks), self.dtype) if self.meta is None else self.meta


def encode_array(array: Any, encoder: Encoder, place: str) -> dict[str, Any]:
    """Return a dask array, without its graph, as JSON."""
    empty = meta_from_array(array)
    meta = None if type(empty) is np.ndarray else encoder.value(empty, place)
    return {
        "name": array.name,
        "chunks": encoder.value(array.chunks, place),
        "dtype": encoder.value(array.dtype, place),
        "meta": meta,
    }


def decode_array(encoded: Any, decoder: Decoder) -> Described:
    """Return what `encode_array` was given.

    Raises `CorruptFrameError` if this describes no array.
    """
    match encoded:
        case {"name": str(name), "chunks": chunks, "dtype": dtype, "meta": meta}:
            found = Described(
                name, decoder.value(chunks), decoder.value(dtype), decoder.value(meta)
            )
            known = _are_chunks(found.chunks) and isinstance(found.dtype, np.dtype)
            if known and (found.meta is None or _is_array(found.meta, found.dtype)):
                return found
    raise CorruptFrameError(f"{encoded!r:.200} describes no array")


def _are_chunks(chunks: Any) -> bool:
    if type(chunks) is not tuple or not all(type(s) is tuple and s for s in chunks):
        return False
    if len(chunks) > _MOST_DIMENSIONS:
        return False
    return all(
        (type(size) is int and 0 <= size < _LONGEST) or (type(size) is float and math.isnan(size))
        for sizes in chunks
        for size in sizes
    )


def _is_array(meta: Any, dtype: np.dtype) -> bool:
    """Return whether dask takes it for an array of that dtype."""
    found, shape = getattr(meta, "dtype", None), getattr(meta, "shape", None)
    return isinstance(found, np.dtype) and found == dtype and isinstance(shape, tuple)


def summary(array: Any) -> dict[str, Any]:
    """Return what a person wants to know of a dask array, as JSON."""
    chunks = [_known(sizes) for sizes in array.chunks]
    return {"shape": _known(array.shape), "dtype": str(array.dtype), "chunks": chunks}


def _known(lengths: Iterable[Any]) -> list[int | None]:
    return [None if math.isnan(length) else int(length) for length in lengths]


class Outputs:
    """Turns what is saved into JSON; collects the dask arrays in it."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.arrays: list[Any] = []

    def encode(self, value: Any, place: str) -> Any:
        """Return what is saved as JSON.

        Raises `UnsavableError` if it is, or holds, something that no file can carry.
        """
        if isinstance(value, da.Array):
            return {"output": self._number(value)}
        if type(value) is list:
            return [self.encode(item, f"{place}[{k}]") for k, item in enumerate(value)]
        if type(value) is tuple:
            return {"tuple": [self.encode(v, f"{place}[{k}]") for k, v in enumerate(value)]}
        if type(value) is dict:
            pairs = [
                [self.encoder.value(k, place), self.encode(v, f"{place}[{k!r}]")]
                for k, v in value.items()
            ]
            return {"dict": pairs}
        xarray = sys.modules.get("xarray")
        if xarray is not None and isinstance(value, xarray.DataArray):
            whole = xarray.Dataset({_ITSELF: value.variable}, coords=value.coords)
            name = self.encoder.value(value.name, place)
            return {"data array": [name, self._dataset(whole, place)]}
        if xarray is not None and isinstance(value, xarray.Dataset):
            return {"dataset": self._dataset(value, place)}
        if is_dask_collection(value):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            remedy = "turn it into a dask.array first: to_dask_array(), or da.from_delayed"
            raise UnsavableError(f"{place}: a collection of type {kind} cannot be saved: {remedy}")
        return self.encoder.value(value, place)

    def _number(self, array: Any) -> int:
        for number, known in enumerate(self.arrays):
            if known.name == array.name:
                return number
        self.arrays.append(array)
        return len(self.arrays) - 1

    def _dataset(self, dataset: Any, place: str) -> dict[str, Any]:
        variables = []
        for name, variable in dataset.variables.items():
            here = f"{place}[{name!r}]"
            if variable.dims == (name,) and variable.to_index().nlevels > 1:
                told = f"{here}: an index of several levels cannot be saved: reset_index() first"
                raise UnsavableError(told)
            data = variable.data if is_dask_collection(variable.data) else variable.values
            attributes = self.encoder.value(dict(variable.attrs), here)
            kept = self.encoder.value(name, here), self.encoder.value(variable.dims, here)
            variables.append([*kept, self.encode(data, here), attributes])
        coordinates = self.encoder.value(list(dataset.coords), place)
        attributes = self.encoder.value(dict(dataset.attrs), place)
        return {"variables": variables, "coordinates": coordinates, "attributes": attributes}


_ITSELF = "__gpusched_data_array__"


def decode(encoded: Any, outputs: list[Any], decoder: Decoder) -> Any:
    """Return what was saved.

    Parameters
    ----------
    encoded
        What `Outputs.encode` returned, from any source.
    outputs
        The dask arrays, or what takes their place.
    decoder
        Reads the other values.
    """
    match encoded:
        case list():
            return [decode(item, outputs, decoder) for item in encoded]
        case {"output": number}:
            return outputs[index(number, len(outputs))]
        case {"tuple": list(items)}:
            return tuple(decode(item, outputs, decoder) for item in items)
        case {"dict": list(pairs)}:
            return {
                _key(decoder.value(k)): decode(v, outputs, decoder) for k, v in map(_pair, pairs)
            }
        case {"dataset": content}:
            return _dataset(content, outputs, decoder)
        case {"data array": [name, content]}:
            return _dataset(content, outputs, decoder)[_ITSELF].rename(decoder.value(name))
    return decoder.value(encoded)


def _key(value: Any) -> Any:
    try:
        hash(value)
    except TypeError as error:
        raise CorruptFrameError(f"{value!r:.200} is not a key of a dict") from error
    return value


def _pair(encoded: Any) -> tuple[Any, Any]:
    match encoded:
        case [key, value]:
            return key, value
    raise CorruptFrameError(f"{encoded!r:.200} is not a pair")


def _dataset(encoded: Any, outputs: list[Any], decoder: Decoder) -> Any:
    import xarray as xr

    match encoded:
        case {"variables": list(variables), "coordinates": coordinates, "attributes": attributes}:
            named = {}
            for variable in variables:
                match variable:
                    case [name, dims, data, about]:
                        content = decode(data, outputs, decoder)
                        named[decoder.value(name)] = (
                            decoder.value(dims), content, decoder.value(about)
                        )  # fmt: skip
            found = decoder.value(coordinates)
            data = {name: v for name, v in named.items() if name not in found}
            coords = {name: v for name, v in named.items() if name in found}
            try:
                return xr.Dataset(data, coords, decoder.value(attributes))
            except (TypeError, ValueError) as error:
                raise CorruptFrameError(f"variables of a data set: {error}") from error
    raise CorruptFrameError(f"{encoded!r:.200} is not a data set")
