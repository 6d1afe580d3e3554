"""What an array's bytes may be: not every byte is a bool, and not every number a character."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from gpusched.serialization.frames import CorruptFrameError


def check(array: Any) -> None:
    """Refuse an array, or a scalar, whose bytes are not values of its dtype.

    NumPy takes the bytes of bools for 0 or 1, and those of texts for code points, without looking.
    Bytes of numbers, times and raw data mean something whatever they are. Raises
    `CorruptFrameError` if one is not a value.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.saving.elements import check
    >>> check(np.array([1, 0], "u1").view(bool))
    >>> check(np.array([1, 2], "u1").view(bool))
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: 2 is not a bool
    """
    if _may_be_wrong(array.dtype):
        _check(_once(np.asarray(array)))


def _may_be_wrong(dtype: np.dtype) -> bool:
    if dtype.fields is not None:
        return any(_may_be_wrong(field[0]) for field in dtype.fields.values())
    return dtype.base.kind in "bU" if dtype.subdtype is None else _may_be_wrong(dtype.base)


def _once(array: np.ndarray) -> np.ndarray:
    """Return an array with each of its elements once, where it repeats some a trillion times."""
    # The ellipsis, because without any axis NumPy would make a scalar of what is yet to be checked.
    once = array[(*(slice(None if stride else 1) for stride in array.strides), ...)]
    low, high = byte_bounds(once)
    if once.size and once.nbytes > high - low:
        raise CorruptFrameError(f"elements of shape {once.shape} overlap in {high - low} bytes")
    return once


def _check(array: np.ndarray) -> None:
    dtype = array.dtype
    if dtype.fields is not None:
        for name in dtype.names or ():
            _check(array[name])
    elif dtype.kind == "b":
        _refuse_above(1, array.view(np.uint8), "bool")
    elif dtype.kind == "U" and array.size:
        # Characters are one more axis; contiguous, since a view needs that.
        points = np.ascontiguousarray(array).view(np.dtype("u4").newbyteorder(dtype.byteorder))
        _refuse_above(sys.maxunicode, points, "character")


def _refuse_above(most: int, numbers: np.ndarray, what: str) -> None:
    found = int(numbers.max(initial=0))
    if found > most:
        raise CorruptFrameError(f"{found} is not a {what}")
