"""Arrays in GPU memory as a header and a frame that never leaves it: for distributed's ``cuda``.

The header is sealed. The bytes are not checked, because that would bring them to the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.serialization.arrays import dtypes, messages
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.arrays.layout import Layout, check
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal


def pack(kind: str, layout: Layout, dtype: Any, frame: Any, /, **extra: Any) -> Message:
    """Return an array as a message for the reader of that name.

    Parameters
    ----------
    kind
        One of `gpusched.serialization.arrays.families.READERS`.
    layout
        Where the elements are in the frame.
    dtype
        Of NumPy's.
    frame
        Contiguous bytes with ``__cuda_array_interface__`` and ``nbytes``.
    extra
        What else the receiver must know: strings, numbers, lists.

    Raises
    ------
    TypeError
        If the dtype is not a plain one.
    """
    if not dtypes.is_plain(dtype):
        raise TypeError(f"arrays of {dtype} have no plain bytes")
    about = {
        "dtype": dtypes.describe(dtype),
        "shape": layout.shape,
        "strides": layout.strides,
        "offset": layout.offset,
        "nbytes": frame.nbytes,
        "extra": {**extra, "kind": kind},
    }
    return {"gpusched": seal(about, []), messages.KEY: kind}, [frame]


def unpack(kind: str, header: dict[str, Any],
           frames: list[Any]) -> tuple[Layout, np.dtype, Any, dict[str, Any]]:  # fmt: skip
    """Return the layout, the dtype, the frame, and what else was said of the array.

    Raises
    ------
    CorruptFrameError
        If the header is not the one that was packed, or the frame has another length.
    """
    about = unseal(header.get("gpusched"), [])
    try:
        layout = Layout(tuple(about["shape"]), tuple(about["strides"]), about["offset"])
        dtype, nbytes, extra = dtypes.parse(about["dtype"]), about["nbytes"], dict(about["extra"])
        (frame,) = frames
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CorruptFrameError):
            raise
        raise CorruptFrameError(f"description of an array: {error!r}") from error
    messages.check(kind, extra)
    if frame.nbytes != nbytes:
        raise CorruptFrameError(f"frame: expected {nbytes} bytes, found {frame.nbytes}")
    check(layout, dtype, frame.nbytes)
    return layout, dtype, frame, extra
