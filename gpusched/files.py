"""Files that others read while they are written, and folders that nobody else writes to."""

from __future__ import annotations

import getpass
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


class UnsafeFolderError(PermissionError):
    """Others may write to a folder whose content is trusted.

    Parameters
    ----------
    folder
        That folder.
    message
        What that means, and what to do.
    """

    def __init__(self, folder: Path, message: str) -> None:
        super().__init__(message)
        self.folder = folder

    def __reduce__(self) -> Any:
        """Return what a copy is made of, in another process too."""
        return type(self), (self.folder, str(self))


def own_folder(path: Path, remedy: str, levels: int = 1) -> None:
    """Make a folder that nobody else may enter, or check that nobody else may write to it.

    Raises `UnsafeFolderError` if it belongs to somebody else, or others may write to it;
    `NotADirectoryError` if something else is in its place.

    Parameters
    ----------
    path
        The folder. It is made, if need be, with every folder above it that is missing.
    remedy
        What to do, besides removing it, where it is not this user's alone.
    levels
        How many folders are checked: this one, and those above it. Whoever may write to one of them
        may replace the next.

    Examples
    --------
    >>> import tempfile
    >>> from gpusched.files import own_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     own_folder(Path(folder, "a", "b"), "name another")
    ...     [oct(Path(folder, made).stat().st_mode & 0o777) for made in ("a", "a/b")]
    ['0o700', '0o700']
    """
    for missing in reversed([path, *path.parents] if not path.is_dir() else []):
        # Each by itself: `parents=True` makes those above with the mode that is usual for folders.
        if not missing.is_dir():
            _make(missing, remedy)
    for folder in (path, *path.parents)[:levels]:
        if not is_own(folder.stat()):
            raise UnsafeFolderError(
                folder,
                f"{folder} is not {_user()}'s alone, so what is there cannot be trusted: remove "
                f"it, or {remedy}",
            )


def _make(folder: Path, remedy: str) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(f"{folder} is not a folder: remove it, or {remedy}") from None


def is_own(found: os.stat_result) -> bool:
    """Return whether only this user, and the system's administrator, may write to something."""
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (os.getuid(), 0) and not others


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"  # Without a name, as in containers.


@contextmanager
def replacing(path: Path, mode: int | None = None, durable: bool = False) -> Iterator[BinaryIO]:
    """Give a new file that takes the place of `path` at the end, or vanishes if that fails.

    Readers find the old file or the new one, whole; of two writers at once, one comes last.

    Parameters
    ----------
    path
        In a folder that exists.
    mode
        Permissions of the file, which only its user may open before; None for the usual ones.
    durable
        Whether it must outlast a failure of the machine: it is then on the disk at the end.

    Raises
    ------
    OSError
        If it cannot be written, as on a full disk; with the name of `path`.

    Examples
    --------
    >>> import tempfile
    >>> from gpusched.files import replacing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "whole")) as file:
    ...         _ = file.write(b"all of it")
    ...     [(found.name, found.read_bytes()) for found in Path(folder).iterdir()]
    [('whole', b'all of it')]
    """
    # Of its own length, since a name may be as long as the file system allows.
    beside = path.with_name(f".writing-{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _named(path, beside):
        file = os.fdopen(os.open(beside, flags, 0o666 if mode is None else 0o600), "wb")
        try:
            with file:
                yield file
                file.flush()
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                if durable:
                    os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


@contextmanager
def _named(path: Path, beside: Path) -> Iterator[None]:
    """Have errors name the file that was to be written, where they name none or the one beside."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, beside, str(beside)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_or_remove(path: str | Path, text: str) -> None:
    """Write a file that somebody has named, as `open` does; none is left where that fails.

    Unlike `write_whole`, it writes to what a link leads to, and to devices and pipes.

    Parameters
    ----------
    path
        In a folder that exists.
    text
        All of it, written in UTF-8.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError:
        with suppress(OSError):
            if os.path.isfile(path):
                os.unlink(os.path.realpath(path))
        raise


def write_whole(path: Path, content: bytes | str, mode: int | None = None) -> None:
    """Write a file so that a reader finds the whole of it or none.

    Parameters
    ----------
    path, mode
        As of `replacing`.
    content
        All of it; text is written in UTF-8.
    """
    with replacing(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def why_not_written(path: str, suffixes: tuple[str, ...] = ()) -> str:
    """Return why a file cannot be written, as far as that can be seen; empty if it can.

    Parameters
    ----------
    path
        The file.
    suffixes
        One of which its name must end with, if any is given.

    Examples
    --------
    >>> from gpusched.files import why_not_written
    >>> why_not_written("out.txt", (".html", ".json"))
    'the name must end with .html or .json'
    """
    folder = os.path.dirname(os.path.abspath(path))
    if suffixes and not path.endswith(suffixes):
        return f"the name must end with {' or '.join(suffixes)}"
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if os.path.isdir(path):
        return "it is a folder; name a file"
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        return "it cannot be written: you may not write there"
    return ""
