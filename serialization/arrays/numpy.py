"""NumPy's arrays: plain dtypes as their bytes, everything else pickled."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gpusched.serialization.arrays import dtypes, messages
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.arrays.replacing import replace

_KIND = "numpy"
_PLAIN: dict[type, dict[str, Any]] = {
    np.ndarray: {},
    np.memmap: {},
    np.matrix: {"matrix": True},
}
"""Types whose bytes, shape and dtype say everything. Subclasses may know more: units, a name."""


def serialize(array: np.ndarray, context: dict[str, Any] | None = None) -> Message:
    """Return an array as a header and frames.

    Arrays of plain dtypes keep their order, strides and broadcasting, and are copied only if they
    have gaps. Memory maps are sent as the arrays they show. Arrays of Python objects, of dtypes
    with metadata and of types that are not NumPy's own are pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays.numpy import deserialize, serialize
    >>> header, frames = serialize(np.broadcast_to(np.float16(7), (1000, 1000)))
    >>> sum(frame.nbytes for frame in frames)
    2
    >>> deserialize(header, frames).strides
    (0, 0)
    """
    about = _PLAIN.get(type(array))
    if about is None or not dtypes.is_plain(array.dtype):
        return messages.pickle(_KIND, array, context)
    return messages.pack(_KIND, np.asarray(array), context, **about)


def deserialize(header: dict[str, Any], frames: list[Any]) -> np.ndarray:
    """Return the array, over the frames where they can be written to.

    Raises
    ------
    CorruptFrameError
        If the header or the frames are not those that were sent.
    """
    if not messages.is_ours(header):
        from distributed.protocol.numpy import deserialize_numpy_ndarray

        return deserialize_numpy_ndarray(header, frames)
    if messages.is_pickled(header):
        return messages.unpickle(_KIND, header, frames)
    array, extra = messages.unpack(_KIND, header, frames)
    return np.asmatrix(array) if extra.get("matrix") else array


def register() -> None:
    """Take the place of distributed's own functions."""
    # Imported first, so that it does not take the place back later.
    importlib.import_module("distributed.protocol.numpy")
    replace(np.ndarray, serialize, deserialize)
    replace(np.matrix, serialize, deserialize)
