"""Messages between the compile service, its clients and its workers.

A frame is two lengths of 4 bytes, a message as JSON, and bytes that go with it. Nothing in it is
unpickled: a kernel is data, and machine code is checked against its key where it is loaded. All the
same, who can send a kernel can have code run, since its statements become Python's source: only
processes of the same user may connect, see `gpusched.store.service.start`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, BinaryIO

_LENGTHS = struct.Struct(">II")
LARGEST = 1 << 28
"""Bytes of a message or of what goes with it; more is taken for damage."""

Frame = tuple[dict[str, Any], bytes]


class FrameError(ValueError):
    """Bytes are not a frame."""


def packed(message: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return a frame.

    Examples
    --------
    >>> import io
    >>> from gpusched.store.service.protocol import packed, read
    >>> read(io.BytesIO(packed({"op": "made"}, b"code")))
    ({'op': 'made'}, b'code')
    """
    text = json.dumps(message).encode()
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


def read(stream: BinaryIO) -> Frame | None:
    """Return the next frame; None at the end.

    Raises
    ------
    FrameError
        If the stream ends within a frame, or holds something else.
    """
    head = _exactly(stream, _LENGTHS.size)
    if not head:
        return None
    length, size = _lengths(head)
    text, payload = _exactly(stream, length), _exactly(stream, size)
    if len(text) < length or len(payload) < size:
        raise FrameError("the stream ends within a frame")
    return _message(text), payload


async def receive(stream: asyncio.StreamReader) -> Frame | None:
    """Return the next frame; None at the end, also within a frame."""
    try:
        length, size = _lengths(await stream.readexactly(_LENGTHS.size))
        text = await stream.readexactly(length)
        return _message(text), await stream.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = stream.read(count - len(found))
        if not more:
            break
        found += more
    return found


def _lengths(head: bytes) -> tuple[int, int]:
    if len(head) < _LENGTHS.size:
        raise FrameError("the stream ends within a frame")
    length, size = _LENGTHS.unpack(head)
    if max(length, size) > LARGEST:
        raise FrameError(f"a frame of {length} and {size} bytes")
    return length, size


def _message(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise FrameError(f"a message that is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FrameError(f"a message that is not an object: {found!r:.100}")
    return found
