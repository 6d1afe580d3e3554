"""NumPy's arrays: plain dtypes as their bytes, everything else pickled; and its masked arrays.

Of a masked array, data, mask and fill value are an array each.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gpusched.serialization import dtypes
from gpusched.serialization.arrays import messages
from gpusched.serialization.arrays.registration import replace
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.strided import Message

_KIND, _MASKED = "numpy", "masked"
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

    Raises `CorruptFrameError` if the header or the frames are not those that were sent.
    """
    if not messages.is_ours(header):
        from distributed.protocol.numpy import deserialize_numpy_ndarray

        return deserialize_numpy_ndarray(header, frames)
    if messages.is_pickled(header):
        return messages.unpickle(_KIND, header, frames)
    array, extra = messages.unpack(_KIND, header, frames)
    return np.asmatrix(array) if extra.get("matrix") else array


def serialize_masked(array: np.ma.MaskedArray, context: dict[str, Any] | None = None) -> Message:
    """Return a masked array as a header and frames; subclasses and objects are pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays.numpy import deserialize_masked, serialize_masked
    >>> array = np.ma.masked_array([1, 2], mask=[False, True], fill_value=9, hard_mask=True)
    >>> back = deserialize_masked(*serialize_masked(array))
    >>> back, back.hardmask
    (masked_array(data=[1, --],
                 mask=[False,  True],
           fill_value=9), True)
    """
    if type(array) is not np.ma.MaskedArray or array.dtype.hasobject:
        return messages.pickle(_MASKED, array, context)
    arrays = [array.data]
    if array.mask is not np.ma.nomask:
        arrays.append(np.asarray(array.mask))
    fill = _fill(array)
    if fill is not None:
        arrays.append(fill)
    sent = [serialize(part, context) for part in arrays]
    told = {"hard": bool(array.hardmask), "fill": fill is not None}
    return messages.join(_MASKED, sent, **told)


def deserialize_masked(header: dict[str, Any], frames: list[Any]) -> np.ma.MaskedArray:
    """Return the masked array.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent.
    """
    if not messages.is_ours(header):
        from distributed.protocol.numpy import deserialize_numpy_maskedarray

        return deserialize_numpy_maskedarray(header, frames)
    if messages.is_pickled(header):
        return messages.unpickle(_MASKED, header, frames)
    sent, extra = messages.split(_MASKED, header, frames)
    arrays = [deserialize(*message) for message in sent]
    fill = arrays.pop()[()] if extra.get("fill") and arrays else None
    if not 1 <= len(arrays) <= 2:
        raise CorruptFrameError(f"masked array: expected data and a mask, found {len(arrays)}")
    data, mask = arrays[0], arrays[1] if len(arrays) > 1 else np.ma.nomask
    about: dict[str, Any] = {"fill_value": fill, "hard_mask": bool(extra.get("hard"))}
    return np.ma.MaskedArray(data, mask, **about)


def _fill(array: np.ma.MaskedArray) -> np.ndarray | None:
    """Return an array's fill value, None for the usual one, which may be none of its dtype's."""
    fill = np.asarray(array.fill_value)
    usual = np.asarray(np.ma.MaskedArray(array.data).fill_value)
    same = fill.dtype == usual.dtype and fill.tobytes() == usual.tobytes()
    return None if same else fill


def register() -> None:
    """Take the place of distributed's own functions."""
    # Imported first, so that it does not take the place back later. The masked constant stays its.
    importlib.import_module("distributed.protocol.numpy")
    replace(np.ndarray, serialize, deserialize)
    replace(np.matrix, serialize, deserialize)
    replace(np.ma.MaskedArray, serialize_masked, deserialize_masked)
