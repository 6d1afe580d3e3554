"""Machine code as bytes that can be trusted to be whole, and the files it is kept in."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from gpusched.files import is_own, own_folder, write_whole

T = TypeVar("T")

CHECKSUM = 16
"""Bytes in front of the code."""


class DamagedCodeError(ValueError):
    """Bytes are not the code that they should be."""


def seal(key: str, code: bytes) -> bytes:
    """Return `code` behind a checksum of it and of its key, as files and messages have it.

    Parameters
    ----------
    key
        What the code was made from, and for: digests of the kernel, the processor and the tools.
    code
        Any bytes.

    Examples
    --------
    >>> from gpusched.store.codefiles import seal, unseal
    >>> unseal("kernel-1", seal("kernel-1", b"code"))
    b'code'
    """
    return _checksum(key, code) + code


def unseal(key: str, sealed: bytes) -> bytes:
    """Return the code in what `seal` returned.

    Raises
    ------
    DamagedCodeError
        If it was cut short or changed, or belongs to another key.
    """
    code = sealed[CHECKSUM:]
    if sealed[:CHECKSUM] != _checksum(key, code):
        raise DamagedCodeError("the checksum does not match")
    return code


def is_whole(key: str, sealed: bytes) -> bool:
    """Return whether `unseal` returns code."""
    try:
        unseal(key, sealed)
    except DamagedCodeError:
        return False
    return True


def _checksum(key: str, code: bytes) -> bytes:
    return hashlib.blake2b(code, digest_size=CHECKSUM, person=_person(key)).digest()


def _person(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


_REMEDY = "name a folder of your own in gpusched.fusion.cache-directory"


_mistrusted: set[Path] = set()
"""Files and folders that others may write to, which were warned of."""


def newly_mistrusted(unsafe: Collection[Path]) -> bool:
    """Note that others may write to files and folders; return whether none was warned of."""
    first = _mistrusted.isdisjoint(unsafe)
    _mistrusted.update(unsafe)
    return first


def read(path: Path, levels: int = 1, start: int = 0) -> bytes | None:
    """Return a file's content; None if there is none, it cannot be read, or others may write it.

    What others can write is not read: it may be code. Each such file or folder is warned of once.

    Parameters
    ----------
    path
        The file.
    levels
        How many of the folders above it must be this user's alone, as `own_folder` has it.
    start
        Bytes at its beginning that are left out.
    """
    try:
        with open(path, "rb") as file:
            found = {path: os.fstat(file.fileno())}
            found |= {folder: folder.stat() for folder in path.parents[:levels]}
            unsafe = [each for each in found if not is_own(found[each])]
            file.seek(start)
            content = b"" if unsafe else file.read()
    except OSError:
        return None
    if not unsafe:
        return content
    if newly_mistrusted(unsafe):
        warnings.warn(
            f"{unsafe[-1]} is not this user's alone, so kernels and measurements there are not "
            f"used, and are made again: remove it, or {_REMEDY}",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def entries(path: Path | None, value: Callable[[Any], T]) -> dict[str, T]:
    """Return what a file has as JSON, by name; nothing if it is missing or damaged.

    It is made again then, as all that is kept in this way.

    Parameters
    ----------
    path
        The file; None for none.
    value
        Reads an entry; a `ValueError` or `TypeError` of it means that the file is damaged.
    """
    content = read(path) if path else None
    try:
        return {str(name): value(each) for name, each in json.loads(content or b"{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def folder_for(path: Path, levels: int = 1) -> None:
    """Make the folder of a file, if need be, so that nobody else may enter it.

    Parameters
    ----------
    path, levels
        As of `read`.

    Raises
    ------
    gpusched.files.UnsafeFolderError
        If there is one that others may write to, or that belongs to somebody else.
    """
    own_folder(path.parent, _REMEDY, levels)


def write(path: Path, content: bytes, levels: int = 1) -> None:
    """Write a file so that no reader ever sees part of it; its folders are made.

    Parameters
    ----------
    path, levels
        As of `read`.
    content
        All of the file.

    Raises
    ------
    gpusched.files.UnsafeFolderError
        If others may write to its folder.
    """
    folder_for(path, levels)
    write_whole(path, content, 0o600)
