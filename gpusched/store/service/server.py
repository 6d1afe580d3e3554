"""The compile service's process: takes requests, and has workers compile.

Started by whoever first needs it, and on its own from then on: in a session of its own, so that no
terminal's Ctrl-C reaches it, in the root folder, with nothing open of who has started it. It ends
when it has had nothing to do for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpusched.newest import Newest
from gpusched.store import codefiles, kernelfiles
from gpusched.store.service import protocol
from gpusched.store.service.compilations import Compilation, Compilations
from gpusched.store.service.compilers import Compilers, Prepare
from gpusched.store.service.start import ForeignPeerError, Place, check_peer

logger = logging.getLogger(__name__)

_PAUSE = 0.05
"""Seconds between two looks at whether another one is ending."""
_LOOK = 5.0
"""Seconds at most between two looks at whether there is still something to do."""
_NAMED = 10_000
"""Kernels that are remembered, those that were made last."""
_BACKLOG = 1024
"""Processes that may wait to be let in: all those of a machine that start together."""


class Server:
    """Answers clients.

    Parameters
    ----------
    place
        Where it is met.
    listening
        The socket that is bound there.
    idle
        Seconds without anything to do after which it ends.
    prepare
        Returns what its workers do.

    Notes
    -----
    Belongs to one event loop.
    """

    def __init__(self, place: Place, listening: socket.socket, idle: float,
                 prepare: Prepare) -> None:  # fmt: skip
        self._place = place
        self._listening = listening
        self._bound = _identity(place)
        self._idle = idle
        self._compilations = Compilations()
        self._compilers = Compilers(self._compilations, self._made, prepare)
        self._clients: dict[int, asyncio.StreamWriter] = {}
        self._number = 0
        self._compiled = 0
        self._spent = 0.0
        self._seconds: Newest[str, float] = Newest(_NAMED)
        self._kept: Newest[str, Path] = Newest(_NAMED)
        """By the keys of machine code that was made here: where it is kept."""
        self._last = time.monotonic()
        self._stopping = asyncio.Event()

    async def serve(self) -> None:
        """Listen until there has been nothing to do for long, or a client says stop."""
        listening = await asyncio.start_unix_server(
            self._client, sock=self._listening, limit=protocol.LARGEST
        )
        try:
            while not self._is_over():
                self._take_left()
                self._compilers.reap()
                try:
                    await asyncio.wait_for(self._stopping.wait(), min(_LOOK, self._idle / 4))
                    break
                except TimeoutError:
                    continue
        finally:
            # Who comes now finds nothing, and starts another.
            if self._is_met():
                self._place.socket.unlink(missing_ok=True)
            listening.close()
            self._compilers.close()
            for writer in list(self._clients.values()):
                writer.transport.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    def _is_over(self) -> bool:
        if self._compilations:
            self._last = time.monotonic()
            return False
        return not self._is_met() or time.monotonic() - self._last >= self._idle

    def _is_met(self) -> bool:
        """Return whether the socket at the place is this one: who cleans up may have removed it."""
        return self._bound is not None and _identity(self._place) == self._bound

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number += 1
        client = self._number
        try:
            with _socket_of(writer) as connected:
                check_peer(connected)
            self._clients[client] = writer
            while (frame := await protocol.receive(reader)) is not None:
                self._last = time.monotonic()
                self._take(client, frame[0])
        except (protocol.FrameError, ForeignPeerError, KeyError, TypeError, ValueError) as error:
            logger.warning("client %d: %r", client, error)
        finally:
            self._clients.pop(client, None)
            self._compilations.leave(client)
            self._compilers.call()
            writer.close()

    def _take(self, client: int, message: dict[str, Any]) -> None:
        match message["op"]:
            case "compile":
                if not self._gives(client, message):
                    self._compilations.add((client, int(message["id"])), message)
                    self._compilers.call()
            case "leave":
                self._leave(message)
            case "urge":
                self._compilations.urge(str(message["name"]), float(message["gain"]))
                self._compilers.call()
            case "status":
                self._send(client, {"id": message["id"], **self.status()})
            case "made":
                self._send(client, {"id": message["id"], "made": dict(self._seconds)})
            case "stop":
                self._stopping.set()
            case other:
                raise ValueError(f"a request to {other!r}")

    def _gives(self, client: int, message: dict[str, Any]) -> bool:
        """Give a client what was compiled after it had looked for it; return whether there is."""
        key = str(message["key"])
        path = self._kept.get(key)
        sealed = None if path is None else codefiles.read(path, kernelfiles.LEVELS)
        if sealed is None or not codefiles.is_whole(key, sealed):
            return False
        self._send(client, {"id": int(message["id"]), "first": False}, sealed)
        return True

    def _take_left(self) -> None:
        """Do what processes have left here that ended before they could ask."""
        taken = self._place.left.with_suffix(".taken")
        try:
            self._place.left.rename(taken)
        except FileNotFoundError:
            return
        stream = io.BytesIO(codefiles.read(taken) or b"")
        taken.unlink()
        self._last = time.monotonic()
        try:
            while (frame := protocol.read(stream)) is not None:
                self._leave(frame[0])
        except (protocol.FrameError, KeyError, TypeError, ValueError) as error:
            logger.warning("requests that were left: %r", error)

    def _leave(self, message: dict[str, Any]) -> None:
        """Take a request whose client ends; it may be done since."""
        path = message.get("path")
        if path and not os.path.exists(path):
            self._compilations.add(None, message)
            self._compilers.call()

    def status(self) -> dict[str, Any]:
        """Return what is being done, as JSON has it."""
        compilations = [
            {"name": each.name, "running": each.running, "awaited": each.awaited,
             "gain": each.gain, "urgent": each.urgent, "clients": len({c for c, _ in each.waiting})}
            for each in self._compilations
        ]  # fmt: skip
        return {"pid": os.getpid(), "compilations": compilations, "clients": len(self._clients),
                "compiled": self._compiled, "seconds": self._spent}  # fmt: skip

    def _made(self, compilation: Compilation, answer: dict[str, Any], code: bytes) -> None:
        """Give everybody a kernel, and keep it for those that are to come."""
        self._last = time.monotonic()
        sealed = codefiles.seal(compilation.key, code) if code else b""
        if code:
            self._count(compilation.name, float(answer.get("seconds", 0.0)))
            self._keep(compilation, sealed)
        for place, (client, number) in enumerate(self._compilations.finish(compilation)):
            self._send(client, {"id": number, "first": not place, **answer}, sealed)

    def _count(self, name: str, seconds: float) -> None:
        self._compiled += 1
        self._spent += seconds
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def _keep(self, compilation: Compilation, sealed: bytes) -> None:
        path = compilation.request.get("path")
        if not path:
            return
        try:
            kernelfiles.keep(Path(path), sealed)
            self._kept[compilation.key] = Path(path)
        except OSError as error:
            # Clients try it as well, and say so.
            logger.warning("cannot write %s: %s", path, error)

    def _send(self, client: int, message: dict[str, Any], payload: bytes = b"") -> None:
        writer = self._clients.get(client)
        if writer is not None:
            writer.write(protocol.packed(message, payload))


def _identity(place: Place) -> tuple[int, int] | None:
    """Return what identifies the socket at a place; None if there is none."""
    try:
        found = os.stat(place.socket)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def bound(place: Place) -> socket.socket:
    """Return a socket that listens at a place, which what is left of an earlier one makes way for.

    Raises
    ------
    OSError
        If there is no room for it, or it is not allowed.
    """
    place.socket.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place.socket))
    listening.listen(_BACKLOG)
    return listening


def _socket_of(writer: asyncio.StreamWriter) -> socket.socket:
    found = writer.get_extra_info("socket")
    return socket.fromfd(found.fileno(), found.family, found.type)


@contextlib.contextmanager
def only_one(place: Place) -> Iterator[bool]:
    """Hold the lock of a place, and say whether this process has it.

    Whoever finds it taken waits for a service that is ending, not for one that answers.
    """
    with open(place.lock, "w") as lock:
        while not (taken := _taken(lock.fileno())) and not _answers(place):
            time.sleep(_PAUSE)
        yield taken


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _answers(place: Place) -> bool:
    with socket.socket(socket.AF_UNIX) as trying:
        try:
            trying.connect(str(place.socket))
        except OSError:
            return False
        return True


def main(prepare: Prepare, folder: str, identity: str, idle: str) -> None:
    """Serve at a place, unless another process does; return when somebody serves there.

    The process that serves is a child of this one, so that nobody has to wait for its end.

    Parameters
    ----------
    prepare
        Imports what compiles, which clients do not wait for, and returns what workers do.
    folder, identity
        Of the place.
    idle
        Seconds without work after which to end, as text.
    """
    logging.basicConfig(format="%(asctime)s %(message)s")
    place = Place(Path(folder), identity)
    with only_one(place) as alone:
        if not alone:
            return
        listening = bound(place)
        if os.fork():
            os._exit(0)  # The child has the lock, too.
        asyncio.run(_serve(place, listening, float(idle), prepare))


async def _serve(place: Place, listening: socket.socket, idle: float,
                 prepare: Prepare) -> None:  # fmt: skip
    await Server(place, listening, idle, prepare).serve()
