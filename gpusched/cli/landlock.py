"""Linux's Landlock: a process gives up writing to files, for itself and all it starts, for good.

The kernel refuses then what no check in Python sees: libraries in C, and other programs. See
https://docs.kernel.org/userspace-api/landlock.html, whose numbers these are.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls, the same on all architectures that numba compiles for."""
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38

_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
_TRUNCATE = 1 << 14


class _Rules(ctypes.Structure):
    _fields_ = (("handled", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def forbid_writes(folders: Iterable[Path], files: Iterable[Path] = ()) -> bool:
    """Give up writing for good, in this thread and in all threads and processes it starts.

    Parameters
    ----------
    folders
        Where everything stays allowed.
    files
        Folders of files that exist and may be written to, such as ``/dev``; or such files.

    Returns
    -------
    bool
        Whether the kernel does so: not before Linux 5.13, nor where Landlock is switched off.

    Notes
    -----
    What is open stays open. Mode, owner and times of files can still be changed.
    """
    version = _call(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    existing = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    handled = existing | _REMOVE_AND_MAKE | (_REFER if version >= 2 else 0)
    rules = _call(_CREATE_RULESET, ctypes.byref(_Rules(handled)), ctypes.sizeof(_Rules), 0)
    if rules < 0:
        return False
    try:
        for paths, allowed in ((folders, handled), (files, existing)):
            for path in paths:
                _allow(rules, path, allowed)
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return _call(_RESTRICT_SELF, rules, 0) == 0
    finally:
        os.close(rules)


def _allow(rules: int, path: Path, allowed: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # There is nothing to be allowed.
    try:
        _call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(_Beneath(allowed, folder)), 0)
    finally:
        os.close(folder)


def _call(number: int, *arguments: object) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return int(call(ctypes.c_long(number), *words))
