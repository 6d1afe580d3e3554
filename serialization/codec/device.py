"""Buffers in GPU memory: shuffled there, then copied block by block through page-locked memory.

What is compressed so reads as what `blocks` compresses, and the other way round: c-blosc's format
says that bytes are shuffled, not who did it. A bit shuffle is left to c-blosc, after the copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gpusched.nvtx_ranges import Kind, shown
from gpusched.serialization.codec import blocks, blosc
from gpusched.serialization.codec.blosc import Header
from gpusched.serialization.codec.byte_shuffle import shuffle as shuffled
from gpusched.serialization.codec.byte_shuffle import unshuffle as unshuffled
from gpusched.serialization.codec.staging import staging
from gpusched.serialization.frames import CorruptFrameError


@shown(Kind.TRANSFER, "compress")
def encode(data: Any, itemsize: int, shuffle: str) -> list[bytes]:
    """Return the compressed blocks of a buffer, in host memory.

    Parameters
    ----------
    data
        Shape ``(n,)``, dtype uint8, CuPy's. The calling thread's stream has filled it.
    itemsize
        Bytes of what is in it.
    shuffle
        ``byte``, ``bit`` or ``none``.
    """
    parts = blocks.split(data)
    return _each(lambda part, host: _encode_block(part, host, itemsize, shuffle), parts)


@shown(Kind.TRANSFER, "decompress")
def decode(frames: Sequence[Any], nbytes: int, block: int) -> Any:
    """Return the buffer, in GPU memory, whose blocks these are; it is filled on return.

    Raises `CorruptFrameError` as `gpusched.serialization.codec.blocks.decode`, and for blocks that
    are longer than ours.
    """
    blocks.check(frames, nbytes, block)
    if block > blocks.BLOCK:
        raise CorruptFrameError(f"blocks of {block} bytes: expected at most {blocks.BLOCK}")
    data = _empty(nbytes)
    _each(_decode_block, blocks.split(data, block), frames)
    return data


@shown(Kind.TRANSFER, "to the host")
def download(data: Any) -> np.ndarray:
    """Return the bytes of a buffer in ordinary host memory."""
    whole = np.empty(data.size, np.uint8)
    _each(_take, blocks.split(data), blocks.split(whole))
    return whole


@shown(Kind.TRANSFER, "to the device")
def upload(whole: np.ndarray, wait: bool = True) -> Any:
    """Return a buffer in GPU memory with these bytes.

    Parameters
    ----------
    whole
        Shape ``(n,)``, dtype uint8. It may change as soon as this returns.
    wait
        Whether the buffer is filled on return; otherwise it is when the calling thread's stream
        comes to what it is given next, and the last blocks are copied beside what the thread does.
    """
    import cupy

    data, device = _empty(whole.size), cupy.cuda.Device()
    stream = cupy.cuda.get_current_stream()

    def put(pair: tuple[Any, np.ndarray]) -> None:
        part, source = pair
        with device, staging().lend() as buffer:
            target = buffer.memory[: source.size]
            np.copyto(target, source)
            part.set(target, stream)
            buffer.copied = stream.record(cupy.cuda.Event(disable_timing=True))

    for _ in blocks.each(put, list(zip(blocks.split(data), blocks.split(whole), strict=True))):
        pass
    if wait:
        stream.synchronize()
    return data


def _encode_block(part: Any, host: np.ndarray, itemsize: int, shuffle: str) -> bytes:
    if shuffle == "byte" and blosc.can_shuffle(itemsize):
        turned = shuffled(part, itemsize, blosc.inner(part.size, itemsize))
        coded = blosc.compress(_fetch(turned, host), itemsize, "none")
        if not Header.of(coded).is_stored:
            return blosc.mark_shuffled(coded)
        # Stored as they are, shuffled bytes would be taken for the plain ones.
        shuffle = "none"
    return blosc.compress(_fetch(part, host), itemsize, shuffle)


def _decode_block(part: Any, host: np.ndarray, frame: Any) -> None:
    header, target = Header.of(frame), host[: part.size]
    if not header.is_shuffled:
        blosc.decompress(frame, target)
        part.set(target)
        return
    blosc.decompress(blosc.mark_plain(frame), target)
    turned = _empty(part.size)
    turned.set(target)
    part[...] = unshuffled(turned, header.itemsize, header.inner)


def _fetch(part: Any, host: np.ndarray) -> np.ndarray:
    target = host[: part.size]
    part.get(out=target)
    return target


def _take(part: Any, host: np.ndarray, target: np.ndarray) -> None:
    np.copyto(target, _fetch(part, host))


def _empty(nbytes: int) -> Any:
    import cupy

    return cupy.empty(nbytes, np.uint8)


def _each(function: Callable[..., Any], parts: Sequence[Any], *others: Iterable[Any]) -> list[Any]:
    """Call a function with each part of a buffer, a page-locked buffer, and what belongs to it."""
    import cupy

    device = cupy.cuda.Device()
    # Threads have streams of their own, which do not wait for the caller's.
    cupy.cuda.get_current_stream().synchronize()

    def call(arguments: tuple[Any, ...]) -> Any:
        part, *rest = arguments
        with device, _stream(device.id) as stream, staging().lend() as buffer:
            result = function(part, buffer.memory, *rest)
            stream.synchronize()
            return result

    return list(blocks.each(call, list(zip(parts, *others, strict=True))))


_streams = threading.local()


def _stream(device: int) -> Any:
    """Return the calling thread's stream for copies; the current device must be that one."""
    import cupy

    streams: dict[Any, Any] = vars(_streams)
    if device not in streams:
        streams[device] = cupy.cuda.Stream(non_blocking=True)
    return streams[device]
