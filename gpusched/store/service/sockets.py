"""Where the compile service is met: a socket in a folder that only its user may enter."""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
from pathlib import Path

from gpusched.dataclass import dataclass
from gpusched.files import is_own, own_folder

_LONGEST = 100
"""Bytes of a socket's path; operating systems allow 103 to 107."""


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
    """Return the folder for sockets: short, on this machine, and gone when it is switched off."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(runtime) < _LONGEST - 60 and _may_use(Path(runtime)):
        return Path(runtime) / "gpusched"
    return Path(tempfile.gettempdir()) / f"gpusched-{os.getuid()}"


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
