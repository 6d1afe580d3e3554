"""Files of the cache that are made again where they are missing: where none can be written."""

from __future__ import annotations

import errno
import json
import warnings
from pathlib import Path
from typing import Any

from gpusched.files import UnsafeFolderError
from gpusched.store import codefiles, kernelfiles

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
        warn(path, error)


def write_entries(path: Path, found: dict[str, Any]) -> None:
    """Write what `gpusched.store.codefiles.entries` reads, or say that it cannot be written.

    What another process writes at the same time may be lost.
    """
    write_or_warn(path, json.dumps(found, indent=1).encode())


def warn(path: Path, error: OSError) -> None:
    """Say that the cache cannot be written and what to do, once in a process.

    Parameters
    ----------
    path
        What was to be written.
    error
        Why that failed.
    """
    root = kernelfiles.directory()
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
