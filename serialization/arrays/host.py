"""Host arrays as a header and frames: what every library's arrays become on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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
    return pack_bytes(layout, array.dtype, data, context, array.flags.writeable, **extra)


def pack_bytes(
    layout: Layout,
    dtype: np.dtype,
    data: Any,
    context: Mapping[str, Any] | None,
    writeable: bool = True,
    /,
    **extra: Any,
) -> Message:
    """Return the bytes of an array, on the host or in GPU memory, as `pack` does.

    Parameters
    ----------
    layout, data
        What `gpusched.serialization.arrays.layout.compact` returns, for NumPy's arrays or CuPy's.
    dtype
        A plain one.
    context, extra
        As for `pack`.
    writeable
        Whether the array that is received may be written to.
    """
    how, frames = codec.encode(data, dtype.itemsize, context)
    about = {
        "dtype": dtypes.describe(dtype),
        "shape": layout.shape,
        "strides": layout.strides,
        "offset": layout.offset,
        "nbytes": data.nbytes,
        "codec": how,
        "writeable": writeable,
        "extra": extra,
    }
    sealed = contain(about) if codec.is_file(context) else seal(about, frames)
    header: dict[str, Any] = {"gpusched": sealed}
    if how is not None:
        # False tells distributed that compressing again does not pay.
        header["compression"] = (False,) * len(frames)
    return header, frames


def unpack(
    header: dict[str, Any], frames: list[Any], from_file: bool = False
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the array, and what else was said of it.

    Parameters
    ----------
    header
        What `pack` returned first.
    frames
        And second.
    from_file
        Whether they come from a file, and not from a process of the cluster.

    Raises
    ------
    CorruptFrameError
        If the header or the frames are not those that were packed.
    """
    described = _described(header, frames)
    data = codec.decode(described.how, frames, described.nbytes, from_file)
    if described.writeable and memoryview(data).readonly:
        # The bytes rather than the array, which may repeat them a million times.
        data = np.frombuffer(data, np.uint8).copy()
    array = restore(described.layout, described.dtype, data)
    array.flags.writeable = described.writeable
    return array, described.extra


def unpack_to_device(
    header: dict[str, Any], frames: list[Any]
) -> tuple[Layout, np.dtype, Any, dict[str, Any]]:
    """Return the layout, the dtype, the bytes in GPU memory (CuPy's), and what else was said.

    Raises
    ------
    CorruptFrameError
        If the header or the frames are not those that were packed.
    """
    described = _described(header, frames)
    data = codec.decode_to_device(described.how, frames, described.nbytes)
    return described.layout, described.dtype, data, described.extra


class _Described(NamedTuple):
    layout: Layout
    dtype: np.dtype
    nbytes: int
    how: Any
    writeable: bool
    extra: dict[str, Any]


def _described(header: dict[str, Any], frames: list[Any]) -> _Described:
    about = unseal(header.get("gpusched"), frames)
    try:
        found = _Described(
            Layout(tuple(about["shape"]), tuple(about["strides"]), about["offset"]),
            dtypes.parse(about["dtype"]),
            *(about[name] for name in ("nbytes", "codec", "writeable", "extra")),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CorruptFrameError):
            raise
        raise CorruptFrameError(f"description of an array: {error!r}") from error
    kinds = type(found.nbytes), type(found.writeable), type(found.extra)
    if kinds != (int, bool, dict):
        raise CorruptFrameError(f"description of an array: found {about!r:.500}")
    check(found.layout, found.dtype, found.nbytes)
    return found
