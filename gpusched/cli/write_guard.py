"""Ends a script before its first write: what `gpusched explain` runs is given zeros.

Python reports what a program does to files, before it is done, to an audit hook (PEP 578). The one
here raises `Stopped` where a file would be changed that is not the program's own scratch or cache.
Below it Linux's Landlock refuses what libraries in C and other processes do (`forbid_writes`; see
https://docs.kernel.org/userspace-api/landlock.html, whose numbers these are).
"""

from __future__ import annotations

import ctypes
import linecache
import os
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from gpusched import config

STOPPED = 3
"""The exit code of a script that was ended before a write."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_BYTECODE = "__pycache__"
"""Folders of what Python, and numba, have compiled."""
_SYSTEM = ("/dev", "/proc")
"""Where files are not files."""
_PROCESSES = frozenset(
    ["os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn",
     "subprocess.Popen"]
)  # fmt: skip


class Stopped(BaseException):
    """A script was about to change a file. No ``except Exception`` of its own catches this."""


@dataclass(frozen=True)
class Write:
    """What a script was about to do."""

    action: str
    """Such as ``open for writing results.npy``."""
    place: str
    """The line of the script, as ``file:line  text``; empty where that is not known."""

    def __str__(self) -> str:
        return f"{self.action}, at {self.place}" if self.place else self.action


class Watch:
    """What a script may write to, and what it was about to do first.

    Parameters
    ----------
    allowed
        Folders for scratch files and caches.

    Notes
    -----
    Any thread may report a write; the first one is kept.
    """

    def __init__(self, allowed: list[Path]) -> None:
        self.first: Write | None = None
        self.enforced = False
        """Whether the system refuses what Python does not see."""
        self._allowed = [os.path.realpath(path) for path in (*map(str, allowed), *_SYSTEM)]
        self._yielding = [os.path.realpath(path) for path in (_configuration(), *_LIBRARIES)]

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise before a write, of all that Python reports."""
        look = _EVENTS.get(event)
        if look is not None:
            for action, path in look(*arguments):
                self._refuse(action, path)
        elif event in _PROCESSES and not self.enforced:
            self._stop(f"start a process ({event})")

    def _refuse(self, action: str, path: str) -> None:
        if any(_is_within(path, folder) for folder in self._allowed):
            return
        if any(_is_within(path, folder) for folder in self._yielding):
            # Libraries try to leave something there as they are imported, and go on without.
            raise PermissionError(f"gpusched explain writes nothing: {action} {path}")
        self._stop(f"{action} {path}")

    def _stop(self, action: str) -> None:
        write = Write(action, _place())
        self.first = self.first or write
        raise Stopped(str(write))


def _configuration() -> str:
    return os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OURS = os.path.dirname(os.path.realpath(config.__file__))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


# What each event is about to do to which file; nothing where it would change none.

_Found = Iterator[tuple[str, str]]


def _opened(path: Any, mode: Any, flags: Any) -> _Found:
    if not isinstance(path, int) and isinstance(flags, int) and flags & _WRITING:
        found = os.path.realpath(os.fsdecode(path))
        if os.path.basename(os.path.dirname(found)) != _BYTECODE:
            yield "open for writing", found


def _named(action: str, path: Any, folder: int = -1) -> _Found:
    """Find a name that is removed, or gets another meaning, if there is one."""
    if isinstance(path, int):
        path = os.readlink(f"/proc/self/fd/{path}")  # The file itself, wherever it is open.
    text = os.fsdecode(path)
    base = os.readlink(f"/proc/self/fd/{folder}") if folder is not None and folder >= 0 else ""
    parent, name = os.path.split(os.path.join(base, text.rstrip(os.sep) or text))
    found = os.path.join(os.path.realpath(parent), name)
    if os.path.lexists(found) != (action == "make") and name != _BYTECODE:
        yield action, found


def _changing(action: str) -> Callable[..., _Found]:
    return lambda path, *rest: _named(action, path, _folder(rest))


def _folder(rest: tuple[Any, ...]) -> int:
    # Where there is a descriptor of a folder among the arguments, it comes last.
    return rest[-1] if rest and type(rest[-1]) is int else -1


def _renamed(source: Any, target: Any, *folders: Any) -> _Found:
    first, second = (*folders, -1, -1)[:2]
    for action, path in _named("rename", source, first):
        yield action, path
        for name in ("make", "replace"):
            yield from _named(name, target, second)


def _linked(source: Any, target: Any, *folders: Any) -> _Found:
    yield from _named("make", target, _folder(folders))


def _database(path: Any) -> _Found:
    text = os.fsdecode(path)
    if text not in ("", ":memory:") and not (text.startswith("file:") and "mode=ro" in text):
        yield "open for writing", os.path.realpath(text.removeprefix("file:").partition("?")[0])


_EVENTS: dict[str, Callable[..., _Found]] = {
    "open": _opened,
    "os.link": _linked,
    "os.mkdir": _changing("make"),
    "os.remove": _changing("remove"),
    "os.rename": _renamed,
    "os.rmdir": _changing("remove"),
    "os.symlink": _linked,
    "os.truncate": lambda path, length: _named("truncate", path),
    "os.chmod": _changing("change the mode of"),
    "os.chown": _changing("change the owner of"),
    "os.utime": lambda path, times, ns, folder: _named("change the times of", path, folder),
    "os.setxattr": lambda path, *rest: _named("change attributes of", path),
    "os.removexattr": lambda path, *rest: _named("change attributes of", path),
    "sqlite3.connect": _database,
}


def _place() -> str:
    """Return the line of the script that is being run, in this thread or else in the main one."""
    frames = sys._current_frames()
    for frame in (sys._getframe(1), frames.get(threading.main_thread().ident or 0)):
        found = _outside(frame)
        if found is not None:
            name, line = found.f_code.co_filename, found.f_lineno
            text = linecache.getline(name, line).strip()
            return f"{os.path.relpath(name)}:{line}  {text}".rstrip()
    return ""


def _outside(frame: FrameType | None) -> FrameType | None:
    while frame is not None:
        name = frame.f_code.co_filename
        library = any(_is_within(name, folder) for folder in (*_LIBRARIES, _OURS))
        if not library and not name.startswith("<") and os.path.exists(name):
            return frame
        frame = frame.f_back
    return None


_watching: list[Watch] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _watching:
        watch(event, arguments)


@contextmanager
def stopping(folders: list[Path]) -> Iterator[Watch]:
    """End this process's program before its first write, within the block.

    Parameters
    ----------
    folders
        Caches, which may be written to; scratch files are kept in the first of them meanwhile.

    Notes
    -----
    For the main thread of a process that ends soon: the audit hook cannot be removed, and is only
    switched off; what the system was asked to forbid stays forbidden.
    """
    made = [folder for folder in folders if _is_made(folder)]
    # In a cache, so that it can be removed in the end: what is above it stays writable.
    above = made[0] if made else None
    with tempfile.TemporaryDirectory(
        prefix="gpusched-explain-", dir=above, ignore_cleanup_errors=above is None
    ) as scratch:
        allowed = [*made, Path(scratch)]
        watch = Watch(allowed)
        with _scratch_in(scratch):
            watch.enforced = forbid_writes([*allowed, Path("/dev/shm")], map(Path, _SYSTEM))
            sys.addaudithook(_hook)
            _watching.append(watch)
            try:
                yield watch
            finally:
                _watching.remove(watch)


def _is_made(folder: Path) -> bool:
    """Return whether a folder is there and can be written to, made if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@contextmanager
def _scratch_in(folder: str) -> Iterator[None]:
    """Let temporary files be made in a folder, by processes started meanwhile too."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir, sys.dont_write_bytecode
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        os.environ.pop("TMPDIR")
        if before[0] is not None:
            os.environ["TMPDIR"] = before[0]
        tempfile.tempdir, sys.dont_write_bytecode = before[1:]


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
