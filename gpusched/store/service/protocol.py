"""Messages between the compile service, its clients and its workers.

A frame is a line: a message as JSON, with the bytes that go with it in base64. Nothing in it is
unpickled: a kernel is data, and machine code is checked against its key where it is loaded. All the
same, who can send a kernel can have code run, since its statements become Python's source: only
processes of the same user may connect, see `gpusched.store.service.start`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, BinaryIO

LARGEST = 1 << 28
"""Bytes of a line; more is taken for damage."""

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
    return json.dumps([message, base64.b64encode(payload).decode()]).encode() + b"\n"


def read(stream: BinaryIO) -> Frame | None:
    """Return the next frame; None at the end.

    Raises
    ------
    FrameError
        If the stream ends within a frame, or holds something else.
    """
    line = stream.readline(LARGEST)
    return _frame(line) if line else None


async def receive(stream: asyncio.StreamReader) -> Frame | None:
    """Return the next frame; None at the end, also within a frame; raise what `read` raises."""
    try:
        line = await stream.readline()
    except ConnectionError:
        return None
    except ValueError as error:
        raise FrameError(f"a line that is too long: {error}") from error
    return _frame(line) if line.endswith(b"\n") else None


def _frame(line: bytes) -> Frame:
    if not line.endswith(b"\n"):
        raise FrameError("the stream ends within a frame")
    try:
        message, payload = json.loads(line)
        found = base64.b64decode(payload, validate=True)
    except (ValueError, TypeError) as error:
        raise FrameError(f"a line that is not a frame: {line!r:.100}") from error
    if not isinstance(message, dict):
        raise FrameError(f"a message that is not an object: {message!r:.100}")
    return message, found
