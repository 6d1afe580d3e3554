"""Strided arrays as a description and bytes, and again as arrays: messages and files hold them so.

What of an array has to be sent is its elements, each once, and where they belong: a `Layout`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpusched.serialization import codec, dtypes
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import contain, seal, unseal

_MOST_DIMENSIONS = 64
"""As NumPy has it."""


Message = tuple[dict[str, Any], list[Any]]
"""What distributed sends: a header that msgpack can write, and frames of bytes."""


@dataclass(frozen=True)
class Layout:
    """Where the elements of an array are in a buffer."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes; 0 along axes that repeat one element, negative along reversed ones."""
    offset: int
    """Bytes before the element at index 0."""


def compact(
    array: Any, contiguous: Callable[[Any], Any] = np.ascontiguousarray
) -> tuple[Layout, Any]:
    """Return the elements of an array, each once, and where they belong.

    The order of the axes in memory is kept, gaps are left out, and axes along which the array
    repeats itself (stride 0) are sent once. Only arrays with gaps are copied.

    Parameters
    ----------
    array
        Of any shape and dtype, without Python objects; NumPy's or one that works alike.
    contiguous
        The array's library's own function that brings an array into C's order.

    Returns
    -------
    tuple
        The layout, and the bytes as an array of shape ``(n,)`` and dtype uint8.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.strided import compact
    >>> layout, data = compact(np.broadcast_to(np.arange(3.0), (1000, 3)))
    >>> layout
    Layout(shape=(1000, 3), strides=(0, 8), offset=0)
    >>> data.nbytes
    24
    """
    shape, itemsize = array.shape, array.dtype.itemsize
    if not array.size:
        # Strides mean nothing then, and are kept for themselves.
        return Layout(shape, tuple(array.strides), 0), contiguous(array).reshape(-1).view(np.uint8)
    repeats = [n > 1 and stride == 0 for n, stride in zip(shape, array.strides, strict=True)]
    reverses = [n > 1 and stride < 0 for n, stride in zip(shape, array.strides, strict=True)]
    parts = [
        slice(1) if repeated else slice(None, None, -1) if reverse else slice(None)
        for repeated, reverse in zip(repeats, reverses, strict=True)
    ]
    # The ellipsis, because without any part NumPy returns a scalar, of texts a shorter one.
    kept = array[(*parts, ...)]
    # Axes of one element can lie anywhere; in their place they keep an array in C's order so.
    order = list(range(array.ndim))
    moving = [axis for axis in order if kept.shape[axis] > 1]
    for place, axis in zip(moving, sorted(moving, key=lambda k: -kept.strides[k]), strict=True):
        order[place] = axis
    dense = contiguous(kept.transpose(order))
    strides, offset = [0] * array.ndim, 0
    step = itemsize
    for axis in reversed(order):
        if not repeats[axis]:
            strides[axis] = -step if reverses[axis] else step
            offset += step * (shape[axis] - 1) if reverses[axis] else 0
        step *= kept.shape[axis]
    return Layout(shape, tuple(strides), offset), dense.reshape(-1).view(np.uint8)


def restore(layout: Layout, dtype: np.dtype, buffer: Any) -> np.ndarray:
    """Return the array over a buffer, without copying it.

    Raises `CorruptFrameError` if an element would be outside the buffer.

    Parameters
    ----------
    layout
        From any source: what does not fit the buffer is refused before an array is made.
    dtype
        Of its elements, without Python objects.
    buffer
        Contiguous bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.strided import Layout, restore
    >>> restore(Layout((3,), (-8,), 16), np.dtype("i8"), np.arange(3).data)
    array([2, 1, 0])
    >>> restore(Layout((4,), (8,), 0), np.dtype("i8"), np.arange(3).data)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: shape (4,), ... from byte 0 to 32, of 24
    """
    check(layout, dtype, memoryview(buffer).nbytes)
    try:
        return np.ndarray(layout.shape, dtype, buffer, layout.offset, layout.strides)
    except (ValueError, TypeError) as error:
        # More elements than there are addresses, for one.
        raise CorruptFrameError(f"{_told(layout, dtype)}: {error}") from error


def check(layout: Layout, dtype: np.dtype, nbytes: int) -> None:
    """Refuse a layout that does not fit so many bytes.

    Raises `CorruptFrameError` if an element would be outside of them.
    """
    shape, strides = layout.shape, layout.strides
    whole = all(type(number) is int for number in (*shape, *strides, layout.offset))
    fits = len(shape) == len(strides) <= _MOST_DIMENSIONS
    if not whole or not fits or min(shape, default=0) < 0:
        raise CorruptFrameError(f"{_told(layout, dtype)} do not belong to an array")
    first = last = layout.offset
    if math.prod(shape):
        reaches = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        first += sum(reach for reach in reaches if reach < 0)
        last += sum(reach for reach in reaches if reach > 0) + dtype.itemsize
    if first < 0 or last > nbytes:
        raise CorruptFrameError(
            f"{_told(layout, dtype)} reach from byte {first} to {last}, of {nbytes}"
        )


def _told(layout: Layout, dtype: np.dtype) -> str:
    return f"shape {layout.shape}, strides {layout.strides} and offset {layout.offset} of {dtype}"


def pack(array: np.ndarray, context: Mapping[str, Any] | None = None, **extra: Any) -> Message:
    """Return an array as a header and frames, compressed where that pays.

    Raises `TypeError` if the dtype is not a plain one.

    Parameters
    ----------
    array
        Of a plain dtype, see `gpusched.serialization.dtypes.is_plain`.
    context
        What distributed knows of the connection, or what `codec.to_file` returns. None for what
        stays in this process, which is never compressed.
    extra
        What else the receiver must know: strings, numbers, lists.

    Returns
    -------
    tuple
        The header and the frames. They are checked by `unpack`, as is `extra`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization import strided
    >>> array, extra = strided.unpack(*strided.pack(np.eye(2)[:, ::-1], color="red"))
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
        What `compact` returns, for NumPy's arrays or CuPy's.
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

    Raises `CorruptFrameError` if the header or the frames are not those that were packed.

    Parameters
    ----------
    header
        What `pack` returned first.
    frames
        And second.
    from_file
        Whether they come from a file, and not from a process of the cluster.
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

    Raises `CorruptFrameError` if the header or the frames are not those that were packed.
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
