"""Requests to a named cluster: a line of JSON each way, over a socket in the cluster's folder."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

SOCKET = "control"


class ControlError(RuntimeError):
    """The cluster does not answer, or says that it could not do what was asked."""


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Give a name of the socket that is short enough for the system, however deep its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


async def listen(folder: Path, handler: Handler) -> asyncio.AbstractServer:
    """Answer requests until the server is closed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await handler(json.loads(await reader.readline()))
        except (ValueError, KeyError, OSError, TimeoutError) as error:
            reply = {"error": _words(error)}
        writer.write(json.dumps(reply).encode() + b"\n")
        try:
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            # Whoever asked has gone, and needs no answer.
            return

    (folder / SOCKET).unlink(missing_ok=True)
    with _short(folder) as path:
        server = await asyncio.start_unix_server(answer, path)
    os.chmod(folder / SOCKET, 0o600)
    return server


def _words(error: Exception) -> str:
    """Return an error as a sentence's end; those of a request that lacks something have its name.

    Examples
    --------
    >>> from gpusched.cluster.named.control import _words
    >>> _words(KeyError("workers")), _words(TimeoutError())
    ("the request lacks 'workers'", 'TimeoutError')
    """
    if isinstance(error, KeyError):
        return f"the request lacks {error}"
    return str(error) or type(error).__name__


def ask(folder: Path, request: dict[str, Any], timeout: float = 10) -> dict[str, Any]:
    """Send a request and return the answer.

    Raises `ControlError` if there is none in `timeout` seconds, or it reports an error.
    """
    try:
        with _short(folder) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("r") as lines:
                reply: dict[str, Any] = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise ControlError(f"it does not answer: {error or type(error).__name__}") from error
    if "error" in reply:
        raise ControlError(str(reply["error"]))
    return reply
