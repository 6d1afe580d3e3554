"""Arrays that stand in for chunks: of the right dtype, shape and strides, never computed."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from dask.array import core, routines
from dask.core import flatten, reshapelist

from gpusched.graph.functions.lanes import between
from gpusched.graph.functions.partials import bare
from gpusched.plan.plan import changed
from gpusched.record.catalogue import has

MAPPED = 1 << 18
"""Bytes from which an array of zeros gets pages of its own."""

MOST_LABELS = 1 << 20
"""Bytes of integers that are not stood in for by zeros."""


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array of zeros which takes no memory for as long as nothing is written to it.

    Pages that have just been freed are not used for it, as those would be set to zero.

    Examples
    --------
    >>> from gpusched.inspection.standins import zeros
    >>> zeros((300, 300), "f8").sum()
    np.float64(0.0)
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < MAPPED or dtype.hasobject:
        return np.zeros(shape, dtype)
    # Private, as reading shared pages would take memory for them.
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape)


def fresh(array: Any) -> Any:
    """Return another array of the same kind, in memory of its own: of zeros, but for labels.

    Integers and truth values may decide how many results there are, as labels of groups do: where
    they are known and few, they are those of the graph.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.standins import fresh
    >>> fresh(np.ones((4, 6))[:, ::2]).strides
    (48, 16)
    """
    if not _plain(array) or array.dtype.hasobject:
        return array
    size = array.itemsize
    if size == 0 or array.size == 0 or any(s % size for s in array.strides):
        return np.zeros(array.shape, array.dtype)
    steps = [s // size for s in array.strides]
    reach = [(n - 1) * s for n, s in zip(array.shape, steps, strict=True)]
    first = -sum(r for r in reach if r < 0)
    buffer = zeros((1 + sum(map(abs, reach)),), array.dtype)
    found = np.ndarray(array.shape, array.dtype, buffer, first * size, array.strides)
    if type(array) is np.ndarray and array.dtype.kind in "biu" and array.nbytes <= MOST_LABELS:
        found[...] = array
    return found


def _plain(array: Any) -> bool:
    """Return whether kernels take such arrays: NumPy's, and CuPy's, for which the same holds."""
    return type(array) is np.ndarray or is_cupy(array)


def is_cupy(value: Any) -> bool:
    """Return whether a value is an array of CuPy's, without importing CuPy."""
    kind = type(value)
    return kind.__name__ == "ndarray" and kind.__module__.partition(".")[0] == "cupy"


def ordinary(value: Any) -> Any:
    """Return a NumPy scalar of the same dtype that no kernel has as a constant, as 0 and 1 are.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.standins import ordinary
    >>> ordinary(np.int8(0)), ordinary(np.zeros(3)).shape
    (np.int8(97), (3,))
    """
    if not isinstance(value, np.number):
        return value
    return np.asarray(0.7320508 if value.dtype.kind in "fc" else 97).astype(value.dtype)[()]


def result_of(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return what a function gives of stand-ins; of other numbers where it refuses zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.standins import result_of
    >>> result_of(np.linalg.inv, (np.zeros((2, 2)),), {})
    array([[1., 0.],
           [0., 1.]])
    """
    try:
        return function(*args, **kwargs)
    except ValueError:
        for change in (_identity, _ones):
            with suppress(ValueError):
                return function(*changed(args, change), **changed(kwargs, change))
        raise


def _identity(item: Any) -> Any:
    """Return a stand-in of the same kind that has an inverse where such matrices have one.

    Of one axis, it has distinct numbers, through which there is one line.
    """
    if not _is_number(item) or item.ndim == 0:
        return item
    if item.ndim == 1:
        return np.arange(1, item.size + 1).astype(item.dtype)
    return np.broadcast_to(np.eye(*item.shape[-2:], dtype=item.dtype), item.shape)


def _ones(item: Any) -> Any:
    """Return a stand-in of the same kind without zeros."""
    if not _is_number(item):
        return item
    return np.ones_like(item) if type(item) is np.ndarray else type(item)(1)


def _is_number(item: Any) -> bool:
    plain = type(item) is np.ndarray or isinstance(item, np.generic)
    return plain and item.dtype.kind in "biufc"


def arrays_in(structure: Any) -> list[Any]:
    """Return the arrays and NumPy scalars inside lists, tuples and dictionaries.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.standins import arrays_in
    >>> len(arrays_in({"n": np.ones(3), "total": [np.float32(1)]}))
    2
    """
    if isinstance(structure, np.ndarray | np.generic):
        return [structure]
    if isinstance(structure, list | tuple):
        return [a for item in structure for a in arrays_in(item)]
    if isinstance(structure, dict):
        return [a for item in structure.values() for a in arrays_in(item)]
    return []


def extent(array: Any) -> int:
    """Return the bytes of an array's elements that are in memory: once, where it repeats them."""
    if not isinstance(array, np.ndarray):
        return int(getattr(array, "nbytes", 0))
    bytes_ = array.itemsize
    for length, stride in zip(array.shape, array.strides, strict=True):
        if stride or not length:
            bytes_ *= length
    return bytes_


def is_getter(function: Any) -> bool:
    """Return whether a function takes a piece, of an array or of something like a file."""
    plain = bare(function)
    return has(plain, "reads") or has(plain, "picks")


def from_source(function: Any, args: tuple[Any, ...]) -> Any:
    """Return what a getter would give of a source that must not be read; None for other functions.

    Sources are Zarr arrays, HDF5 datasets and the like: anything with a dtype and a shape.
    """
    if not is_getter(function) or len(args) < 2:
        return None
    source, index = args[:2]
    if isinstance(source, np.ndarray) or not hasattr(source, "shape"):
        return None
    shown = np.broadcast_to(np.zeros((), source.dtype), source.shape)[index]
    return zeros(shown.shape, shown.dtype)


def draw(function: Any, args: tuple[Any, ...]) -> Any:
    """Return zeros for dask's random numbers; None for another function."""
    if not has(bare(function), "draws"):
        return None
    # (generator, name of the distribution, seed, size, its arguments, its keywords)
    size = args[3]
    sample = bare(function)(*args[:3], (0,) * len(size), *args[4:])
    return zeros(size, np.asarray(sample).dtype)


def multiplied(function: Any, args: tuple[Any, ...]) -> Any:
    """Return zeros for a product of matrices; None for another function."""
    plain = bare(function)
    if plain is not np.matmul and plain is not getattr(routines, "_matmul", None):
        return None
    left, right = args
    if min(np.ndim(left), np.ndim(right)) < 2:
        return None
    shape = (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2])
    # dask's chunk function leaves an axis of 1 for the sum over chunks.
    inner = () if plain is np.matmul else (1,)
    return zeros((*shape, *inner, right.shape[-1]), np.result_type(left, right))


def neighbours(function: Any, args: tuple[Any, ...]) -> Any:
    """Return zeros for where points are among coordinates; None for another function."""
    if function is not between:
        return None
    return tuple(zeros(np.shape(args[1]), dtype) for dtype in (np.intp, float, float, bool))


def joined(function: Any, args: tuple[Any, ...]) -> Any:
    """Return zeros for all chunks in one, as `compute` returns them; None for another function."""
    if bare(function) is not core.finalize:
        return None
    chunks = args[0]
    while isinstance(chunks, list) and len(chunks) == 1:
        chunks = chunks[0]
    if not isinstance(chunks, list):
        return chunks
    return zeros(_joined_shape(args[0]), _first(chunks).dtype)


def concatenated(function: Any, args: tuple[Any, ...]) -> Any:
    """Return zeros for several chunks in one, as when chunks are changed; None for others."""
    plain = bare(function)
    if plain is core.concatenate_shaped:
        chunks = reshapelist(args[1], list(args[0]))
    elif plain is core.concatenate3:
        chunks = args[0]
    else:
        return None
    if not isinstance(chunks, list) or not (parts := list(flatten(chunks))):
        return None
    axes = 0
    inner: Any = chunks
    while isinstance(inner, list):
        axes, inner = axes + 1, inner[0]
    ordinary = all(type(part) is np.ndarray and part.ndim == axes for part in parts)
    return zeros(_joined_shape(chunks), parts[0].dtype) if ordinary else None


def _first(chunks: Any) -> Any:
    while isinstance(chunks, list):
        chunks = chunks[0]
    return chunks


def _joined_shape(chunks: Any, axis: int = 0) -> tuple[int, ...]:
    """Return the shape of chunks, nested as deep as they have axes."""
    if not isinstance(chunks, list):
        return tuple(np.shape(chunks))
    shapes = [_joined_shape(chunk, axis + 1) for chunk in chunks]
    total = sum(shape[axis] for shape in shapes)
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])


def elementwise(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return zeros for the result of a function of elements; None for another function."""
    plain = bare(function)
    if isinstance(plain, np.ufunc):
        if plain.signature is not None or plain.nout != 1:
            return None
    elif not has(plain, "elementwise"):
        return None
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    if not arrays or any(isinstance(v, np.ndarray) for v in kwargs.values()):
        return None
    small = [a[(slice(0, 1),) * a.ndim] if isinstance(a, np.ndarray) else a for a in args]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    with np.errstate(all="ignore"):
        found = function(*small, **kwargs)
    # Several arrays, put together as they are, are not of one shape.
    return None if isinstance(found, tuple) else zeros(shape, np.asarray(found).dtype)


_CHUNKS = ("numpy.ndarray", "cupy.ndarray")


class Declared:
    """The chunks' shapes and dtypes that dask was given when the graph was built."""

    def __init__(self, layers: Any) -> None:
        self._layers = layers

    def chunk(self, layer: str, block: tuple[Any, ...], of: str = "") -> Any:
        """Return zeros for one chunk of a layer, or None if dask does not know its shape.

        Parameters
        ----------
        layer
            The layer's name.
        block
            The chunk's position.
        of
            Another layer, whose positions these are; it must have as many chunks a dimension.
        """
        told = self._told(layer)
        if told is None or len(told["chunks"]) != len(block):
            return None
        if of and of != layer:
            other = self._told(of)
            if other is None or _counts(other) != _counts(told):
                return None
        if not all(isinstance(k, int) and k < len(c)
                   for k, c in zip(block, told["chunks"], strict=True)):  # fmt: skip
            return None
        shape = tuple(c[k] for c, k in zip(told["chunks"], block, strict=True))
        if any(n != n for n in shape) or told["chunk_type"] not in _CHUNKS:
            return None
        return zeros(tuple(map(int, shape)), told["dtype"])

    def chunks(self, layer: str) -> tuple[tuple[int, ...], ...]:
        """Return the lengths of a layer's chunks in each dimension; none where not known."""
        told = self._told(layer)
        return told["chunks"] if told is not None else ()

    def depends_on_values(self, layer: str) -> bool:
        """Return whether dask does not know the lengths of a layer's chunks."""
        return any(n != n for lengths in self.chunks(layer) for n in lengths)

    def _told(self, layer: str) -> dict[str, Any] | None:
        found = self._layers.get(layer)
        told = getattr(found, "collection_annotations", None)
        return told if told and "chunks" in told else None


def _counts(told: dict[str, Any]) -> list[int]:
    return [len(c) for c in told["chunks"]]
