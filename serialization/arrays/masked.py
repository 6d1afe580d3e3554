"""NumPy's masked arrays: data, mask and fill value, each as an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.serialization.arrays import kinds, parts, pickled
from gpusched.serialization.arrays import numpy as plain
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.arrays.replacing import replace
from gpusched.serialization.frames import CorruptFrameError

_KIND = "masked"


def serialize(array: np.ma.MaskedArray, context: dict[str, Any] | None = None) -> Message:
    """Return a masked array as a header and frames; subclasses are pickled.

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
    if type(array) is not np.ma.MaskedArray:
        return pickled.pack(_KIND, array, context)
    # Fill values of texts may be longer than the texts.
    fill = np.array(array.fill_value, None if array.dtype.kind in "SU" else array.dtype)
    arrays = [array.data, fill]
    if array.mask is not np.ma.nomask:
        arrays.append(np.asarray(array.mask))
    messages = [plain.serialize(part, context) for part in arrays]
    return parts.join(_KIND, messages, hard=bool(array.hardmask))


def deserialize(header: dict[str, Any], frames: list[Any]) -> np.ma.MaskedArray:
    """Return the masked array.

    Raises
    ------
    CorruptFrameError
        If the header or the frames are not those that were sent.
    """
    if not kinds.is_ours(header):
        from distributed.protocol.numpy import deserialize_numpy_maskedarray

        return deserialize_numpy_maskedarray(header, frames) if header else np.ma.masked
    if pickled.is_pickled(header):
        return pickled.unpack(_KIND, header, frames)
    messages, extra = parts.split(_KIND, header, frames)
    arrays = [plain.deserialize(*message) for message in messages]
    if not 2 <= len(arrays) <= 3:
        raise CorruptFrameError(f"masked array: expected data, fill value and mask, found {extra}")
    data, fill, *masks = arrays
    mask = masks[0] if masks else np.ma.nomask
    about: dict[str, Any] = {"fill_value": fill[()], "hard_mask": bool(extra.get("hard"))}
    return np.ma.MaskedArray(data, mask, **about)


def register() -> None:
    """Take the place of distributed's own functions."""
    from distributed.protocol import numpy as theirs

    replace(np.ma.MaskedArray, serialize, deserialize, theirs.serialize_numpy_maskedarray)
    replace(np.ma.core.MaskedConstant, serialize, deserialize, theirs.serialize_numpy_ma_masked)
