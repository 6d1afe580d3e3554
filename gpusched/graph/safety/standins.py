"""What stands in for functions that ask of what type an array is, while a program is recorded.

A lazy chunk stands for an array of NumPy's, or for one of its scalars, and `isinstance` and
`numpy.asarray` see that it is neither. So functions that are recorded read these instead, which
answer for what the chunk stands for, and do for anything else what Python and NumPy do. Where
chunks are of another library to the program, they end the recording.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import SUPPORTED
from gpusched.record.chunk import LazyChunk, is_scalar, node_of, recorder_of


def _is_instance(value: Any, types: Any) -> bool:
    if type(value) is not LazyChunk:
        return isinstance(value, types)
    return issubclass(value.dtype.type if is_scalar(_numpys(value)) else np.ndarray, types)


def _as_array(value: Any, dtype: Any = None) -> Any:
    """Return the array that a lazy chunk stands for, in another dtype if it has not got that."""
    found = _numpys(value)
    if is_scalar(found):
        found = LazyChunk(recorder_of(found), node_of(found))
    return found if dtype is None else found.astype(dtype, copy=False)


def _array(value: Any, dtype: Any = None) -> Any:
    """Return an array of its own, of a lazy chunk or of a list of them."""
    found = _as_array(_stacked(value, dtype) if type(value) is list else value)
    return found.astype(found.dtype if dtype is None else dtype)


def _stacked(chunks: list[Any], dtype: Any) -> Any:
    """Return one array of lazy chunks, which `numpy.stack` lays out as `numpy.array` does.

    It is still to be converted, as `numpy.array` converts arrays. Scalars in a list it makes
    numbers of Python's first, which differs where the dtype does not have all values: it raises
    for integers, and rounds them twice; only from float to float both are the same.
    """
    first = next(each for each in chunks if type(each) is LazyChunk)
    alike = all(type(each) is LazyChunk and each.dtype == first.dtype for each in chunks)
    if not alike or any(each.ndim > 1 for each in chunks) or first.dtype not in SUPPORTED:
        reason = GraphBreak.VALUES("makes an array of arrays that are not alike, or have two axes")
        recorder_of(first).stop(reason)
    target = first.dtype if dtype is None else np.dtype(dtype)
    exact = target.kind == first.dtype.kind == "f" or np.can_cast(first.dtype, target, "safe")
    if any(is_scalar(each) for each in chunks) and not (exact and target in SUPPORTED):
        recorder_of(first).stop(GraphBreak.VALUES("makes an array of scalars in another dtype"))
    return np.stack([_numpys(each) for each in chunks])


def _numpys(chunk: LazyChunk) -> LazyChunk:
    """Return a lazy chunk, if what it stands for is NumPy's to the program."""
    recorder = recorder_of(chunk)
    if recorder.device is not HOST and not recorder.moved:
        recorder.stop(GraphBreak.VALUES("asks whether a chunk of another library is NumPy's"))
    return chunk


def _converting(function: Callable[..., Any], of_lazy: Callable[..., Any]) -> Callable[..., Any]:
    def convert(value: Any, *args: Any, **kwargs: Any) -> Any:
        listed = function is np.array and type(value) is list
        lazy = any(type(each) is LazyChunk for each in (value if listed else (value,)))
        return (of_lazy if lazy else function)(value, *args, **kwargs)

    return convert


CONVERTING: dict[Any, Callable[..., Any]] = {
    np.array: _converting(np.array, _array),
    np.asanyarray: _converting(np.asanyarray, _as_array),
    np.asarray: _converting(np.asarray, _as_array),
}
"""By functions that make an array of what they are given, which may be one, what does that."""


def stand_in(function: Any) -> Any:
    """Return what a function that is recorded reads instead of one of Python's or NumPy's."""
    return _is_instance if function is isinstance else CONVERTING.get(function, function)
