"""Where the compile service is met, and how it is started if there is none.

It is met at a socket in a folder that only its user may enter.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.files import is_own, own_folder
from gpusched.store.service import protocol

logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds that a service may take to start, on a machine under load."""
IDLE = 600.0
"""Seconds without anything to do after which it ends; a start costs a second."""
STARTS = 3
"""How often one is started for a request, if it is killed as it starts."""
_PAUSES = (0.01, 0.2)
"""Seconds between two tries to connect: at first, and at most."""


_LONGEST = 100
"""Bytes of a socket's path; operating systems allow 103 to 107."""
_NAME = len("/0123456789abcdef.sock")
"""Bytes of its name in its folder."""


class UnavailableError(RuntimeError):
    """There is no compile service, and none can be started; the message says why."""


class KilledError(UnavailableError):
    """The service was killed as it started, each time: that says nothing about the next one."""


class ForeignPeerError(ConnectionError):
    """The process at the other end of a socket is another user's."""


@dataclass(frozen=True)
class Place:
    """Of one service: processes that would compile a kernel alike share it.

    Parameters
    ----------
    folder
        Only this user may enter it.
    identity
        A digest of everything that machine code depends on but the kernel.
    """

    folder: Path
    identity: str

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / f"{self.identity}.sock"

    @property
    def lock(self) -> Path:
        """The file that the one service there is holds a lock on."""
        return self.folder / f"{self.identity}.lock"

    @property
    def log(self) -> Path:
        """What it writes of errors."""
        return self.folder / f"{self.identity}.log"

    @property
    def left(self) -> Path:
        """Requests that processes have left there at their end, as frames."""
        return self.folder / f"{self.identity}.left"

    def prepare(self) -> None:
        """Make the folder.

        Raises
        ------
        gpusched.files.UnsafeFolderError
            If others may write to it.
        """
        own_folder(self.folder, "set XDG_RUNTIME_DIR to a folder of your own")


def folder() -> Path:
    """Return the folder for sockets: short, and gone when the machine is switched off, if may be.

    What is not an absolute path is not used, as the XDG Base Directory Specification has it: the
    service works in another folder than its clients.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and _may_use(runtime) and _is_short(found := runtime / "gpusched"):
        return found
    found = Path(tempfile.gettempdir()) / f"gpusched-{os.getuid()}"
    return found if _is_short(found) else Path("/tmp") / found.name


def _is_short(path: Path) -> bool:
    return len(os.fsencode(path)) + _NAME <= _LONGEST


def _may_use(path: Path) -> bool:
    try:
        return is_own(path.stat()) and os.access(path, os.W_OK | os.X_OK)
    except OSError:
        return False


def check_peer(connected: socket.socket) -> None:
    """Raise `ForeignPeerError` if the process at the other end is another user's.

    Where the operating system does not say so, the folder's permissions have to do.
    """
    if sys.platform != "linux":
        return
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack(
        "3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    if uid != os.getuid():
        raise ForeignPeerError(f"a process of user {uid} at the compile service's socket")


def connected(place: Place, start: bool = True) -> socket.socket:
    """Return a socket to the service of a place.

    Parameters
    ----------
    place
        Where it is met.
    start
        Whether one is started if there is none.

    Raises
    ------
    UnavailableError
        If there is none, and it could not be started.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise UnavailableError("there are no Unix sockets here")
    found = _tried(place)
    if found is None and start:
        _start(place)
        pause, most = _PAUSES
        until = time.monotonic() + PATIENCE
        while (found := _tried(place)) is None and time.monotonic() < until:
            time.sleep(pause)
            pause = min(2 * pause, most)
    if found is None:
        raise UnavailableError(f"nothing answers at {place.socket}, see {place.log}")
    return found


def _tried(place: Place) -> socket.socket | None:
    trying = socket.socket(socket.AF_UNIX)
    try:
        trying.connect(str(place.socket))
        check_peer(trying)
    except (FileNotFoundError, ConnectionRefusedError):
        trying.close()
        return None
    except OSError as error:
        trying.close()
        raise UnavailableError(f"{place.socket}: {error}") from error
    return trying


def leave_for(place: Place, messages: list[dict[str, Any]]) -> None:
    """Leave requests for the service of a place, and have one started; it is not waited for."""
    try:
        place.prepare()
        with open(place.left, "ab", buffering=0, opener=_private) as file:
            file.write(b"".join(map(protocol.packed, messages)))
        _process(place)
    except OSError as error:
        logger.info("what was asked for is not compiled after this process: %s", error)


def _process(place: Place) -> subprocess.Popen[bytes]:
    """Start the process of a service, which ends when one serves at its place."""
    code = [sys.executable, "-P", "-m", "gpusched.backends.compileworker"]
    with open(place.log, "a", opener=_private) as log:
        return subprocess.Popen(
            [*code, str(place.folder), place.identity, str(IDLE)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=log, cwd="/", start_new_session=True,
            env=_environment(),
        )  # fmt: skip


def _start(place: Place) -> None:
    """Start a service; it is nobody's child once this returns. One that is not needed ends."""
    try:
        place.prepare()
        status = -1
        for _ in range(STARTS):
            if status < 0:
                status = _status(_process(place))
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"a compile service cannot be started: {error}") from error
    if status:
        kind = KilledError if status < 0 else UnavailableError
        raise kind(f"a compile service cannot be started: its process ended with status {status}")


def _status(starting: subprocess.Popen[bytes]) -> int:
    """Wait until a service serves, which is when the process that was started has ended."""
    try:
        return starting.wait(PATIENCE)
    except BaseException:
        starting.kill()
        starting.wait()
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _environment() -> dict[str, str]:
    """Return this process's environment, with its places of modules.

    NumPy's linear algebra starts no threads there: a process that has some is not to be forked.
    """
    places = [os.path.abspath(each) for each in sys.path]
    own = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(places)), "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | own
