"""Arrays in GPU memory: as messages that never leave it, as bytes, and where there is no GPU.

Messages are for distributed's family ``cuda``. Their header is sealed. The bytes are not checked,
because that would bring them to the host. Bytes belong to any library's array:
https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from gpusched import config
from gpusched.serialization import dtypes
from gpusched.serialization.arrays import messages
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal
from gpusched.serialization.strided import Layout, Message, check


def pack(kind: str, layout: Layout, dtype: Any, frame: Any, /, **extra: Any) -> Message:
    """Return an array as a message for the reader of that name.

    Raises `TypeError` if the dtype is not a plain one.

    Parameters
    ----------
    kind
        One of `gpusched.serialization.arrays.registration.READERS`.
    layout
        Where the elements are in the frame.
    dtype
        Of NumPy's.
    frame
        Contiguous bytes with ``__cuda_array_interface__`` and ``nbytes``.
    extra
        What else the receiver must know: strings, numbers, lists.
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

    Raises `CorruptFrameError` if the header is not the one that was packed, or the frame has
    another length.
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


class Region:
    """A stretch of GPU memory, as an array of bytes that any library can wrap.

    Parameters
    ----------
    owner
        The array that the memory belongs to, which lives as long as this does.
    pointer
        Of the first byte.
    nbytes
        How many.
    stream
        As the interface reports it: the stream that writes there, or None if all is written.

    Examples
    --------
    >>> from gpusched.serialization.arrays.device import Region
    >>> Region(None, 4096, 8).__cuda_array_interface__["shape"]
    (8,)
    """

    def __init__(self, owner: Any, pointer: int, nbytes: int, stream: int | None = None) -> None:
        self.owner = owner
        self.nbytes = nbytes
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "strides": None,
            "data": (pointer, False),
            "stream": stream,
            "version": 3,
        }


def span(array: Any, itemsize: int) -> tuple[Layout, Region]:
    """Return the memory that an array reaches, gaps included, and where its elements are there.

    Parameters
    ----------
    array
        Has ``__cuda_array_interface__``.
    itemsize
        Bytes of an element.
    """
    interface = array.__cuda_array_interface__
    shape, pointer = tuple(interface["shape"]), interface["data"][0]
    told = interface.get("strides")
    strides = dense_strides(shape, itemsize) if told is None else tuple(told)
    low, high = _reach(shape, strides, itemsize)
    region = Region(array, pointer + low, high - low, interface.get("stream"))
    return Layout(shape, strides, -low), region


def dense_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides, in bytes, of an array in C's order.

    Examples
    --------
    >>> from gpusched.serialization.arrays.device import dense_strides
    >>> dense_strides((2, 3), 8)
    (24, 8)
    """
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def has_gaps(layout: Layout, itemsize: int) -> bool:
    """Return whether an array reaches more bytes than its elements take.

    Examples
    --------
    >>> from gpusched.serialization.arrays.device import has_gaps
    >>> from gpusched.serialization.strided import Layout
    >>> has_gaps(Layout((2, 1000), (8, 0), 0), 8), has_gaps(Layout((2, 3), (64, 8), 0), 8)
    (False, True)
    """
    low, high = _reach(layout.shape, layout.strides, itemsize)
    taken = itemsize if high > low else 0
    for n, stride in zip(layout.shape, layout.strides, strict=True):
        taken *= n if stride else 1
    return high - low > taken


def _reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    if 0 in shape:
        return 0, 0
    reaches = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    return sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0) + itemsize


class WithoutGpuError(RuntimeError):
    """A GPU array was sent to a process that cannot hold it."""


def allow_host(kind: str, why: str, instead: str = "a NumPy array") -> None:
    """Return if host arrays are wanted instead of GPU arrays.

    Raises `WithoutGpuError` if ``gpusched.serialization.without-gpu`` is ``error``; `ValueError` if
    that setting is neither ``error`` nor ``host``.

    Parameters
    ----------
    kind
        The type that was sent.
    why
        It cannot be made here.
    instead
        What it becomes where that is wanted.
    """
    wanted = config.get("serialization.without-gpu")
    if wanted not in ("error", "host"):
        raise ValueError(
            f"gpusched.serialization.without-gpu is {wanted!r}: expected error or host"
        )
    if wanted == "error":
        raise WithoutGpuError(
            f"a {kind} has arrived where {why}. Compute with it on a GPU worker, or set "
            f"gpusched.serialization.without-gpu to host to receive {instead}"
        )


def is_installed(library: str) -> bool:
    """Return whether a library can be imported, without importing it.

    Examples
    --------
    >>> from gpusched.serialization.arrays.device import is_installed
    >>> is_installed("numpy"), is_installed("no_such_library")
    (True, False)
    """
    return find_spec(library) is not None


def require(library: str, what: str) -> None:
    """Refuse a value where its library is missing.

    Raises `ModuleNotFoundError` if the library cannot be imported here.

    Examples
    --------
    >>> from gpusched.serialization.arrays.device import require
    >>> require("no_such_library", "a tensor")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: a tensor has arrived where no_such_library is not installed
    """
    if not is_installed(library):
        raise ModuleNotFoundError(
            f"{what} has arrived where {library} is not installed", name=library
        )
