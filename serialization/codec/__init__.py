"""Compression of buffers of numbers: a shuffle at the item size, then LZ4, where that pays.

The shuffle and LZ4 are c-blosc's, from numcodecs. `blocks` compresses, `choice` decides whether to,
from a small sample and from what is known of the `link` over which the bytes will go. Where the
receiver's GPU can copy the buffer itself, `interprocess` says where it is instead.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpusched import config, events
from gpusched.serialization.codec import blocks, choice, device, interprocess, link
from gpusched.serialization.codec.interprocess import Handle
from gpusched.serialization.codec.link import KEY, Link, Transfer
from gpusched.serialization.frames import CorruptFrameError

__all__ = ["Link", "decode", "decode_to_device", "encode", "is_file", "to_device", "to_file"]

_NAME = "blosc-lz4"
Context = Mapping[str, Any]


def to_file(disk: Link | None) -> dict[str, Any]:
    """Return the context of what is written to a file that has a checksum of its own.

    Frames are compressed while they are written, see `gpusched.serialization.codec.blocks.
    completed`; not at all without a link.
    """
    return {KEY: disk}


def is_file(context: Context | None) -> bool:
    """Return whether this is what `to_file` returned."""
    return context is not None and KEY in context


def encode(data: Any, itemsize: int, context: Context | None) -> tuple[list[Any] | None, list[Any]]:
    """Return how a buffer is compressed, None for not at all, and its frames.

    Parameters
    ----------
    data
        Shape ``(n,)``, dtype uint8; NumPy's, or CuPy's on a GPU.
    itemsize
        Bytes of what is in it.
    context
        As distributed's serializers get it; None compresses nothing.

    Returns
    -------
    tuple
        What `decode` needs to know, and frames in host memory.
    """
    offered = _offered(data, context)
    if offered is not None:
        return [interprocess.NAME, *offered], []
    wanted = config.get("serialization.compression")
    way, found = None, None
    if context is not None and wanted is not False:
        way = context[KEY] if is_file(context) else link.to(context)
    if way is not None and not _is_too_large(data, way):
        found = choice.choose(data, itemsize, None if wanted is True else way)
    on_device = not isinstance(data, np.ndarray)
    if on_device and (found is None or is_file(context)):
        data, on_device = device.download(data), False
    if found is None:
        _note(way)
        return None, [data]
    if is_file(context):
        return [_NAME, blocks.BLOCK], blocks.pending(data, itemsize, found.shuffle)
    started = time.monotonic()
    frames = (device if on_device else blocks).encode(data, itemsize, found.shuffle)
    # On a machine as busy as the sample found it, and as this was. Where everything is compressed,
    # nobody asks what the link could do, and estimates need not blur it.
    expected = (time.monotonic() - started) * found.decoding / found.encoding
    _note(way, math.inf if wanted is True else expected)
    return [_NAME, blocks.BLOCK], frames


def _offered(data: Any, context: Context | None) -> Handle | None:
    """Return where a buffer is, if the receiver is to copy it to its GPU itself."""
    if isinstance(data, np.ndarray) or context is None or is_file(context):
        return None
    way = link.to(context)
    if not isinstance(way, Transfer):
        return None
    offered = interprocess.offer(data) if choice.directly(data.nbytes, way) else None
    if offered is None:
        way.through_host += data.nbytes
    else:
        way.hold(data)
        _note(way)
    return offered


def _is_too_large(data: Any, way: Link | Transfer) -> bool:
    # Both ends would have the buffer and its compressed form in memory.
    return isinstance(way, Transfer) and data.nbytes > way.largest


def _note(way: Link | Transfer | None, decoding: float = 0.0) -> None:
    if isinstance(way, Transfer):
        way.prepared(time.monotonic(), decoding)


def decode(how: Any, frames: Sequence[Any], nbytes: int, from_file: bool = False) -> Any:
    """Return the bytes of a buffer, checked before memory is taken.

    Raises `CorruptFrameError` if the frames do not hold so many bytes.

    Parameters
    ----------
    how
        What `encode` returned first.
    frames
        And second. Compressed ones are let go while they are expanded: a list is empty afterwards.
    nbytes
        Length of the buffer.
    from_file
        Whether they come from a file, which has no business in the memory of other processes.
    """
    offered = None if from_file else interprocess.fetch_to_host
    coded = functools.partial(blocks.decode, release=True)
    return _decoded(how, frames, nbytes, _Ways(lambda frame: frame, coded, offered))


def decode_to_device(how: Any, frames: Sequence[Any], nbytes: int) -> Any:
    """Return the bytes of a buffer in GPU memory, CuPy's, checked before memory is taken.

    Raises `CorruptFrameError` if the frames do not hold so many bytes.
    """
    return _decoded(how, frames, nbytes, _Ways(to_device, device.decode, interprocess.fetch))


def to_device(frame: Any, wait: bool = True) -> Any:
    """Return bytes in GPU memory, CuPy's, with shape ``(n,)`` and dtype uint8.

    Without waiting they are there for what the calling thread's stream is given next.
    """
    return device.upload(np.frombuffer(frame, np.uint8), wait)


class _Ways(NamedTuple):
    """What returns the bytes of a buffer, by how it was sent."""

    plain: Callable[[Any], Any]
    coded: Callable[[Sequence[Any], int, int], Any]
    offered: Callable[[Handle, int], Any] | None
    """None refuses a buffer that is in another process's memory."""


def _decoded(how: Any, frames: Sequence[Any], nbytes: int, ways: _Ways) -> Any:
    if how is None:
        if len(frames) != 1 or memoryview(frames[0]).nbytes != nbytes:
            raise CorruptFrameError(f"one frame of {nbytes} bytes was expected")
        return ways.plain(frames[0])
    match how:
        case [str(name), int(block)] if name == _NAME:
            started = time.perf_counter()
            found = ways.coded(frames, nbytes, block)
            if events.active:
                events.record_since("compression", "decompress", started, nbytes)
            return found
        case [str(name), bytes(handle), int(offset), int(process), float(began)] if (
            name == interprocess.NAME and ways.offered is not None and not frames
        ):
            return ways.offered(Handle(handle, offset, process, began), nbytes)
    raise CorruptFrameError(f"codec: expected {_NAME!r}, found {how!r:.100}")
