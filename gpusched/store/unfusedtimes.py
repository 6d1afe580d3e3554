"""How long earlier processes have done without kernels that are still not compiled.

A script of some seconds never runs for as long as its compilation takes; over its runs it does.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path

from gpusched.store import codefiles, kernelfiles

FILE = "unfused-times.txt"
"""In the cache directory: a line for each note, with a kernel's name and seconds. Processes add
theirs at the end, each in one piece."""

LEAST = 0.02
"""Seconds of a note: what is less waits for more, so that a note's 0.1 ms are next to nothing."""

LARGEST = 1 << 18
"""Bytes after which the file is written again with one line per kernel, the newest `KEPT`."""
KEPT = 1000


class Times:
    """What a file says, read once, and what this process adds to it.

    Parameters
    ----------
    path
        Of the file; None where there is no cache directory, so that nothing is remembered.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._before = _read(path)
        self._unwritten: defaultdict[str, float] = defaultdict(float)

    def before(self, name: str) -> float:
        """Return the seconds that other processes had spent without a kernel when this began."""
        return self._before.get(name, 0.0)

    def add(self, name: str, seconds: float) -> None:
        """Note seconds that this process has spent without a kernel."""
        with self._lock:
            self._unwritten[name] += seconds
            due = self._unwritten[name] >= LEAST
            noted = self._unwritten.pop(name) if due else 0.0
        if due and self._path is not None:
            _append(self._path, name, noted)


def _read(path: Path | None) -> dict[str, float]:
    """Return the sums of a file's lines; those that are damaged are left out."""
    content = (codefiles.read(path) if path else None) or b""
    found: dict[str, float] = {}
    for line in content.decode(errors="replace").splitlines():
        name, _, told = line.partition(" ")
        try:
            seconds = float(told)
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            found[name] = found.pop(name, 0.0) + seconds
    if path is not None and len(content) > LARGEST:
        _shorten(path, dict(list(found.items())[-KEPT:]))
    return found


def _append(path: Path, name: str, seconds: float) -> None:
    try:
        codefiles.folder_for(path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, f"{name} {seconds:.3f}\n".encode())
        finally:
            os.close(handle)
    except OSError as error:
        codefiles.warn_unwritable(path, error)


def _shorten(path: Path, found: dict[str, float]) -> None:
    """Write one line per kernel; what other processes add at the same time may be lost."""
    lines = "".join(f"{name} {seconds:.3f}\n" for name, seconds in found.items())
    codefiles.write_or_warn(path, lines.encode())


_times: dict[Path | None, Times] = {}
_making = threading.Lock()


def here() -> Times:
    """Return the times of this process's cache directory."""
    root = kernelfiles.directory()
    path = root and root / FILE
    with _making:
        if path not in _times:
            _times[path] = Times(path)
        return _times[path]
