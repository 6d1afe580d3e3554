"""The files of compiled kernels: where they are, what they are for, and which are deleted.

What is kept beside them is made again, too, where it is missing or cannot be written.

``kernels/`` of the cache directory has a folder for each toolchain and kind of processor, and
``cubins/`` one for each toolchain of CUDA; each folder says in `MADE_WITH` what it is for.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_bytes

from gpusched import config, forks
from gpusched.dataclass import dataclass
from gpusched.files import UnsafeFolderError, is_own
from gpusched.store import codefiles

logger = logging.getLogger(__name__)

MADE_WITH = "made-with.json"
"""In each folder: names and versions, for people; keys decide what is loaded."""

TARGETS = {"kernels": ".code", "cubins": ".cubin"}
"""How the names of machine code end, by the folder of all such folders."""

LEVELS = 3
"""Folders above a kernel's machine code, up to and with the cache directory."""

_TOUCHED = 86400.0
"""Seconds: a file that is used is marked as used once in this time."""
_KEY = 32
"""Letters of a key in a name."""
_PART = 64
"""A process looks at all kernels each time it has written so small a part of the largest size."""


class OtherToolchainError(RuntimeError):
    """Code would not be what another process wants."""


def directory() -> Path | None:
    """Return where kernels are kept, or None if that is nowhere.

    ``gpusched.fusion.cache-directory``; by default ``gpusched`` in the user's cache directory.
    """
    configured = dask.config.get("gpusched.fusion.cache-directory", "default")
    if configured is None or configured is False:
        return None
    return _folder(configured, os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@lru_cache(maxsize=16)
def _folder(configured: str, *environment: str | None) -> Path | None:
    """Return a cache directory, which depends on these variables; asked for with each task.

    It stays where it is if this process goes to another folder, as the compile service does.
    """
    del environment
    try:
        own = Path(configured).expanduser() if configured != "default" else user_caches()
    except RuntimeError:
        warnings.warn(
            f"user {os.getuid()} has no home folder, so compiled kernels are kept in memory only: "
            "set HOME, XDG_CACHE_HOME or gpusched.fusion.cache-directory",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return (own if configured != "default" else own / "gpusched").absolute()


def is_empty() -> bool:
    """Return whether nothing has been compiled for this cache directory, or there is none.

    Who knows that needs no key of a kernel, for which LLVM may have to be loaded.
    """
    root = directory()
    # There may be no way to it, either.
    return root is None or not any(os.path.isdir(root / name) for name in TARGETS)


def user_caches() -> Path:
    """Return the folder in which this user's programs keep what can be made again.

    Raises
    ------
    RuntimeError
        If this user has no home folder, as in containers.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@dataclass(frozen=True)
class KernelFiles:
    """All files of one kernel in one folder: its source, and its machine code in each form."""

    paths: tuple[Path, ...]
    size: int
    """Bytes."""
    used: float
    """When the last of them was written or loaded, in seconds since 1970, to within a day."""

    @property
    def code(self) -> tuple[Path, ...]:
        """The files of machine code; none where a source was written and nothing was compiled."""
        return tuple(path for path in self.paths if path.suffix in TARGETS.values())

    def remove(self) -> None:
        """Remove the files; what another process has removed already is no error."""
        for path in self.paths:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Folder:
    """What one toolchain has made for one target."""

    path: Path
    made_with: dict[str, str]
    """Versions and processor by name; empty if they are not known."""
    kernels: tuple[KernelFiles, ...]

    @property
    def compiled(self) -> int:
        """How many kernels have machine code here."""
        return sum(bool(each.code) for each in self.kernels)

    @property
    def size(self) -> int:
        """Bytes of all kernels."""
        return sum(each.size for each in self.kernels)

    @property
    def used(self) -> float:
        """When a kernel was last written or loaded, in seconds since 1970; 0 for never."""
        return max((each.used for each in self.kernels), default=0.0)


def folders(root: Path) -> list[Folder]:
    """Return what a cache directory has, the most recently used folder first.

    Raises
    ------
    gpusched.files.UnsafeFolderError
        If others may write to it.
    """
    paths = [path for name in TARGETS for path in _folders_of(root / name)]
    found = [Folder(path, made_with(path), tuple(_kernels(path))) for path in paths]
    return sorted(found, key=lambda folder: folder.used, reverse=True)


def kernels(root: Path) -> list[KernelFiles]:
    """Return all kernels of a cache directory; raise what `folders` raises."""
    return [each for folder in folders(root) for each in folder.kernels]


def _folders_of(path: Path) -> list[Path]:
    try:
        found = sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
        unsafe = [each for each in (path.parent, path, *found) if not is_own(each.stat())]
    except FileNotFoundError:
        return []
    if unsafe:
        raise UnsafeFolderError(
            unsafe[0],
            f"{unsafe[0]} is not this user's alone, so what is there is left as it is: remove it, "
            "or name a folder of your own in gpusched.fusion.cache-directory",
        )
    return found


def made_with(path: Path) -> dict[str, str]:
    """Return what a folder says that it is for; nothing where it does not say so."""
    return codefiles.entries(path / MADE_WITH, str)


def describe(path: Path, made: dict[str, str]) -> None:
    """Write into a folder what it is for, unless it is there."""
    if not (path / MADE_WITH).exists():
        codefiles.write(path / MADE_WITH, json.dumps(made, indent=1).encode())


def _kernels(path: Path) -> Iterator[KernelFiles]:
    found: defaultdict[str, list[os.DirEntry[str]]] = defaultdict(list)
    with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name != MADE_WITH and entry.is_file(follow_symlinks=False):
                found[kernel_name(entry.name)].append(entry)
    for group in found.values():
        with contextlib.suppress(FileNotFoundError):  # Another process has removed it.
            stats = [entry.stat(follow_symlinks=False) for entry in group]
            paths = tuple(Path(entry.path) for entry in group)
            used = max(each.st_mtime for each in stats)
            yield KernelFiles(paths, sum(each.st_size for each in stats), used)


def kernel_name(file: str) -> str:
    """Return the kernel that a file belongs to.

    Examples
    --------
    >>> from gpusched.store.kernelfiles import kernel_name
    >>> kernel_name("add_1f.py"), kernel_name(f"add_1f-{'0' * 32}.code")
    ('add_1f', 'add_1f')
    """
    stem, suffix = os.path.splitext(file)
    return stem[: -_KEY - 1] if suffix in TARGETS.values() else stem


def key_of(file: str) -> str:
    """Return the key in the name of a file of machine code.

    Examples
    --------
    >>> from gpusched.store.kernelfiles import key_of
    >>> key_of(f"add_1f-{'0' * 32}.code") == "0" * 32
    True
    """
    return os.path.splitext(file)[0][-_KEY:]


def touch(path: Path) -> None:
    """Mark a file as used now, if that has not been done today; it is among the last to go."""
    with contextlib.suppress(OSError):  # A cache that cannot be written is not made smaller, too.
        now = time.time()
        if now - path.stat().st_mtime > _TOUCHED:
            os.utime(path, (now, now))


def least_recent(found: list[KernelFiles], size: int) -> list[KernelFiles]:
    """Return the kernels that have to go so that others of at most so many bytes are left.

    Examples
    --------
    >>> from gpusched.store.kernelfiles import KernelFiles, least_recent
    >>> kernels = [KernelFiles((), size=10, used=day) for day in (3, 1, 2)]
    >>> [each.used for each in least_recent(kernels, 10)]
    [1, 2]
    """
    excess = sum(each.size for each in found) - size
    gone = []
    for each in sorted(found, key=lambda each: each.used):
        if excess <= 0:
            break
        gone.append(each)
        excess -= each.size
    return gone


def shrink(root: Path, size: int) -> list[KernelFiles]:
    """Remove what was not used for longest, until at most so many bytes are left; return it."""
    gone = least_recent(kernels(root), size)
    for each in gone:
        each.remove()
    return gone


def largest_size() -> int | None:
    """Return how many bytes all kernels may take: ``gpusched.fusion.cache-size``; None for any."""
    configured = config.get("fusion.cache-size")
    return None if configured is None else int(parse_bytes(configured))


_lock = forks.lock()
_written: dict[Path, int] = {}
"""Bytes that this process has written into each cache directory since it last looked at it."""


def _is_due(root: Path, size: int, largest: int) -> bool:
    """Note a write of so many bytes; return whether to look at the directory now."""
    with _lock:
        # The first write of a process looks: others may have written any amount.
        since = _written.get(root, largest) + size
        _written[root] = 0 if since * _PART >= largest else since
        return _written[root] == 0


def keep(path: Path, sealed: bytes) -> None:
    """Write machine code, and remove what was not used for longest if there is too much of it.

    Parameters
    ----------
    path
        Its file, in a folder of `TARGETS` of a cache directory.
    sealed
        What `gpusched.store.codefiles.seal` returned.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    codefiles.write(path, sealed, LEVELS)
    root, largest = path.parents[LEVELS - 1], largest_size()
    if largest is not None and _is_due(root, len(sealed), largest):
        try:
            shrink(root, largest)
        except OSError as error:
            # It is written all the same.
            logger.warning("cannot make the kernels in %s take less room: %s", root, error)


def clear(root: Path) -> list[KernelFiles]:
    """Remove all kernels, and what debuggers show of them; return the kernels."""
    found = folders(root)
    for folder in found:
        remove(folder)
    debug = root / "debug"
    for path in debug.glob("*.py") if debug.is_dir() and is_own(debug.stat()) else ():
        path.unlink(missing_ok=True)
    return [each for folder in found for each in folder.kernels]


def remove(folder: Folder) -> None:
    """Remove a folder with all its kernels; what another process has written meanwhile stays."""
    for each in folder.kernels:
        each.remove()
    (folder.path / MADE_WITH).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # Not empty: there are new kernels in it.
        folder.path.rmdir()


# Where nothing can be written -----------------------------------------------------------------

FULL = errno.ENOSPC, errno.EDQUOT
"""Numbers of errors that say that there is no room."""
_SETTING = "gpusched.fusion.cache-directory"

_warned: set[Path] = set()


def write_or_warn(path: Path, content: bytes) -> None:
    """Write a file of the cache; if it cannot be written, say so.

    Parameters
    ----------
    path, content
        As of `gpusched.store.codefiles.write`.
    """
    try:
        codefiles.write(path, content)
    except OSError as error:
        warn_unwritable(path, error)


def write_entries(path: Path, found: dict[str, Any]) -> None:
    """Write what `gpusched.store.codefiles.entries` reads, or say that it cannot be written.

    What another process writes at the same time may be lost.
    """
    write_or_warn(path, json.dumps(found, indent=1).encode())


def warn_unwritable(path: Path, error: OSError) -> None:
    """Say that the cache cannot be written and what to do, once in a process.

    Parameters
    ----------
    path
        What was to be written.
    error
        Why that failed.
    """
    root = directory()
    folder = root if root is not None and root in path.parents else path.parent
    if folder in _warned:
        return
    if isinstance(error, UnsafeFolderError) and not codefiles.newly_mistrusted([error.folder]):
        return
    _warned.add(folder)
    warnings.warn(
        f"gpusched cannot keep compiled kernels and measurements in {folder}: "
        f"{error.strerror or error}. They are made again in each process.{_remedy(error)}",
        RuntimeWarning,
        stacklevel=2,
    )


def _remedy(error: OSError) -> str:
    if error.errno is None:
        return ""  # An error of `gpusched.files`, which says what to do.
    if error.errno in FULL:
        return f" Free space there, or set {_SETTING} to another folder (null for none)."
    return f" Set {_SETTING} to a folder that can be written (null for none)."
