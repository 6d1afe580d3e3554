"""NumPy's masked arrays: data, mask and fill value, each as an array."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gpusched.serialization.arrays import messages
from gpusched.serialization.arrays import numpy as plain
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.arrays.replacing import replace
from gpusched.serialization.frames import CorruptFrameError

_KIND = "masked"


def serialize(array: np.ma.MaskedArray, context: dict[str, Any] | None = None) -> Message:
    """Return a masked array as a header and frames; subclasses and objects are pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays.masked import deserialize, serialize
    >>> array = np.ma.masked_array([1, 2], mask=[False, True], fill_value=9, hard_mask=True)
    >>> back = deserialize(*serialize(array))
    >>> back, back.hardmask
    (masked_array(data=[1, --],
                 mask=[False,  True],
           fill_value=9), True)
    """
    if type(array) is not np.ma.MaskedArray or array.dtype.hasobject:
        return messages.pickle(_KIND, array, context)
    arrays = [array.data]
    if array.mask is not np.ma.nomask:
        arrays.append(np.asarray(array.mask))
    fill = _fill(array)
    if fill is not None:
        arrays.append(fill)
    sent = [plain.serialize(part, context) for part in arrays]
    told = {"hard": bool(array.hardmask), "fill": fill is not None}
    return messages.join(_KIND, sent, **told)


def deserialize(header: dict[str, Any], frames: list[Any]) -> np.ma.MaskedArray:
    """Return the masked array.

    Raises
    ------
    CorruptFrameError
        If the header or the frames are not those that were sent.
    """
    if not messages.is_ours(header):
        from distributed.protocol.numpy import deserialize_numpy_maskedarray

        return deserialize_numpy_maskedarray(header, frames)
    if messages.is_pickled(header):
        return messages.unpickle(_KIND, header, frames)
    sent, extra = messages.split(_KIND, header, frames)
    arrays = [plain.deserialize(*message) for message in sent]
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
    replace(np.ma.MaskedArray, serialize, deserialize)
