"""Host arrays as a header and frames: what every library's arrays become on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusched.serialization import codec
from gpusched.serialization.arrays import dtypes
from gpusched.serialization.arrays.layout import Layout, check, compact, restore
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import contain, seal, unseal

Message = tuple[dict[str, Any], list[Any]]
"""What distributed sends: a header that msgpack can write, and frames of bytes."""


def pack(array: np.ndarray, context: Mapping[str, Any] | None = None, **extra: Any) -> Message:
    """Return an array as a header and frames, compressed where that pays.

    Parameters
    ----------
    array
        Of a plain dtype, see `gpusched.serialization.arrays.dtypes.is_plain`.
    context
        What distributed knows of the connection, or what `codec.to_file` returns. None for what
        stays in this process, which is never compressed.
    extra
        What else the receiver must know: strings, numbers, lists.

    Returns
    -------
    tuple
        The header and the frames. They are checked by `unpack`, as is `extra`.

    Raises
    ------
    TypeError
        If the dtype is not a plain one.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays import host
    >>> array, extra = host.unpack(*host.pack(np.eye(2)[:, ::-1], color="red"))
    >>> array, extra
    (array([[0., 1.],
           [1., 0.]]), {'color': 'red'})
    """
    if not dtypes.is_plain(array.dtype):
        raise TypeError(f"arrays of {array.dtype} have no plain bytes: pickle them")
    layout, data = compact(array)
    how, frames = codec.encode(data, array.dtype.itemsize, context)
    about = {
        "dtype": dtypes.describe(array.dtype),
        "shape": layout.shape,
        "strides": layout.strides,
        "offset": layout.offset,
        "nbytes": data.nbytes,
        "codec": how,
        "writeable": array.flags.writeable,
        "extra": extra,
    }
    sealed = contain(about) if codec.is_file(context) else seal(about, frames)
    header: dict[str, Any] = {"gpusched": sealed}
    if how is not None:
        # False tells distributed that compressing again does not pay.
        header["compression"] = (False,) * len(frames)
    return header, frames


def unpack(header: dict[str, Any], frames: list[Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the array, and what else was said of it.

    Raises
    ------
    CorruptFrameError
        If the header or the frames are not those that were packed.
    """
    about = unseal(header.get("gpusched"), frames)
    try:
        layout = Layout(tuple(about["shape"]), tuple(about["strides"]), about["offset"])
        dtype = dtypes.parse(about["dtype"])
        nbytes, how = about["nbytes"], about["codec"]
        writeable, extra = about["writeable"], about["extra"]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CorruptFrameError):
            raise
        raise CorruptFrameError(f"description of an array: {error!r}") from error
    if type(nbytes) is not int or type(writeable) is not bool or not isinstance(extra, dict):
        raise CorruptFrameError(f"description of an array: found {about!r:.500}")
    check(layout, dtype, nbytes)
    data = codec.decode(how, frames, nbytes)
    if writeable and memoryview(data).readonly:
        # The bytes rather than the array, which may repeat them a million times.
        data = np.frombuffer(data, np.uint8).copy()
    array = restore(layout, dtype, data)
    array.flags.writeable = writeable
    return array, extra
