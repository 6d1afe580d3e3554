"""What is known of a named cluster: a folder that its manager holds locked while it lives."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any

from gpusched.files import own_folder, write_whole

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Record:
    """One running cluster, as its manager wrote it down."""

    name: str
    pid: int
    """The manager's process."""
    address: str
    """The scheduler's."""
    dashboard: str
    """Address of its page; empty for none."""
    started: float
    """Seconds since 1970."""
    tls: str = ""
    """The folder of the cluster's certificates; empty for connections that are not encrypted."""


class UnknownClusterError(LookupError):
    """There is no cluster of that name."""


class DamagedError(RuntimeError):
    """What is kept of a cluster cannot be read; the message names the file and the reason."""


def root() -> Path:
    """Return the folder that holds this user's clusters, and make it if need be.

    Raises `gpusched.files.UnsafeFolderError` if it belongs to somebody else, or others may write to
    it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime else Path(tempfile.gettempdir()) / f"gpusched-{os.getuid()}"
    folder = (base / "gpusched" if runtime else base) / "clusters"
    for path in (folder.parent, folder):
        own_folder(path, "set XDG_RUNTIME_DIR to a folder of your own")
    return folder


def folder_of(name: str) -> Path:
    """Return the folder of a cluster, whether or not there is one of that name.

    Raises `ValueError` if the name could not be a folder's.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name!r} cannot be a cluster's name: use at most 64 letters, digits, - and _, and "
            f"begin with a letter or a digit"
        )
    return root() / name


def names() -> list[str]:
    """Return the names of all clusters there are traces of."""
    return sorted(path.name for path in root().iterdir() if _NAME.fullmatch(path.name))


def acquire(folder: Path) -> IO[str] | None:
    """Lock a cluster's folder for this process; return the lock, or None if it is held.

    The system lets go of it when the process ends, however it ends, so that the lock shows whether
    a cluster lives, and no other process can be taken for it. Raises `DamagedError` if something
    else than a folder is in the way.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Opened without being emptied: another process's number may be in it.
        lock = open(folder / "lock", "a+")  # noqa: SIM115
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise DamagedError(
            f"{error.filename} is in the way: remove it with `gpusched cluster stop {folder.name}`"
        ) from None
    if _locked(lock):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock
    lock.close()
    return None


def is_alive(folder: Path) -> bool:
    """Return whether a cluster's manager lives."""
    try:
        # A folder that another process removes at this time must not be made again.
        with open(folder / "lock", "r+") as lock:
            return not _locked(lock)
    except OSError:
        # What this user's processes cannot open, none of them holds.
        return False


def manager_of(folder: Path) -> int | None:
    """Return the process that holds a cluster's lock, or None if none does."""
    if not is_alive(folder):
        return None
    # Empty for the moment between locking and writing.
    written = (folder / "lock").read_text(errors="replace")
    return int(written) if written.isdecimal() else None


def _locked(lock: IO[str]) -> bool:
    """Lock a file until it is closed, unless somebody else has; return whether it is locked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write(folder: Path, record: Record) -> None:
    """Write a record, so that a reader finds the whole of it or none."""
    write_whole(folder / "state.json", json.dumps(asdict(record)))


def read(folder: Path) -> Record | None:
    """Return the record of a cluster, or None where none was written.

    Raises `DamagedError` if it cannot be read.
    """
    file = folder / "state.json"
    if os.path.lexists(folder) and not folder.is_dir():
        raise DamagedError(f"{folder} is not a folder")
    try:
        return _record(json.loads(file.read_text()))
    except FileNotFoundError:
        if file.is_symlink():
            raise DamagedError(f"{file} is a link to a file that does not exist") from None
        return None
    except (OSError, ValueError) as error:
        raise DamagedError(f"{file} cannot be read: {error}") from None


_KINDS: dict[str, tuple[type, ...]] = {"pid": (int,), "started": (int, float)}
"""Types of the fields of a record that are not text."""


def _record(found: Any) -> Record:
    if not isinstance(found, dict):
        raise ValueError(f"it holds {found!r} instead of the fields of a cluster")
    values = {field.name: found.get(field.name, field.default) for field in fields(Record)}
    for name, value in values.items():
        kinds = _KINDS.get(name, (str,))
        if not isinstance(value, kinds) or isinstance(value, bool):
            told = "is missing" if name not in found else f"is {value!r}"
            raise ValueError(f"the field {name!r} {told}")
    return Record(**values)


def log_of_failure(folder: Path) -> Path:
    """Return where the log of a cluster that did not start is kept, whether or not there is one."""
    return folder.parent.parent / "failed" / f"{folder.name}.log"


def keep_log(folder: Path) -> Path | None:
    """Keep a log beyond its cluster's folder; return where, or None if nothing was written."""
    log, kept = folder / "log", log_of_failure(folder)
    if not log.exists() or not log.stat().st_size:
        return None
    kept.parent.mkdir(mode=0o700, exist_ok=True)
    return log.replace(kept)


def forget(folder: Path) -> None:
    """Remove a cluster's folder, or what is in its place."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)
