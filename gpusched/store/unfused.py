"""Runs without kernels: how long all processes have done without them, and whether some go on here.

A worker rarely runs for as long as a compilation takes, nor does a script of some seconds; all
workers of a script do, or all of its runs.

While none goes on is the time to start a compiler that can wait. A compile service takes as much of
the processor before its first kernel as a short computation takes in all, and takes it from tasks
even where it has the lowest priority.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from gpusched import forks
from gpusched.newest import Newest
from gpusched.store import codefiles, kernelfiles

FILE = "unfused-times.txt"
"""In the cache directory: a line for each note, with a kernel's name and seconds. Processes add
theirs at the end, each in one piece."""

LEAST = 0.02
"""Seconds of a note: what is less waits for more, so that a note's 0.1 ms are next to nothing."""

LARGEST = 1 << 18
"""Bytes after which the file is written again with one line per kernel."""
KEPT = 1000
"""Kernels that are remembered, the newest."""


class Times:
    """What a file says of all processes, this one included.

    Parameters
    ----------
    path
        Of the file; None where there is no cache directory, so that nothing is remembered.

    Notes
    -----
    Thread-safe. What other processes have written is known with each note of this one, so that
    of all processes at work the last to write knows the sum.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = forks.lock()
        self._unwritten: Newest[str, float] = Newest(KEPT)
        self._sums: Newest[str, float] = Newest(KEPT)
        self._file: int | None = None
        """The inode of the file that has been read up to `_read`."""
        self._read = 0
        if path is not None:
            self._look(path)
            if self._read > LARGEST:
                _shorten(path, self._sums)

    def total(self, name: str) -> float:
        """Return the seconds that all processes have spent without a kernel, as far as known."""
        with self._lock:
            return self._sums.get(name, 0.0) + self._unwritten.get(name, 0.0)

    def add(self, name: str, seconds: float) -> bool:
        """Note seconds that this process has spent without a kernel.

        Returns
        -------
        bool
            Whether that is enough to decide again by the total.
        """
        with self._lock:
            spent = self._unwritten[name] = self._unwritten.get(name, 0.0) + seconds
            if spent < LEAST:
                return False
            if self._path is None:
                self._sums[name] = self._sums.get(name, 0.0) + self._unwritten.pop(name)
                return True
            line = f"{name} {spent:.3f}\n"
            if (found := _append(self._path, line)) is not None:
                del self._unwritten[name]
                if (found.st_ino, found.st_size) == (self._file, self._read + len(line)):
                    # Nobody else has written since.
                    self._read = found.st_size
                    self._count(line)
                else:
                    self._look(self._path)
            return True

    def _look(self, path: Path) -> None:
        """Add what has been written since the last time; all again if it is another file."""
        try:
            found = path.stat()
        except OSError:
            return
        if found.st_ino != self._file or found.st_size < self._read:
            self._file, self._read = found.st_ino, 0
            self._sums.clear()
        # A line that is being written has no end yet.
        whole = (codefiles.read(path, start=self._read) or b"").rpartition(b"\n")
        self._read += len(whole[0]) + len(whole[1])
        for line in whole[0].decode(errors="replace").splitlines():
            self._count(line)

    def _count(self, line: str) -> None:
        name, _, told = line.partition(" ")
        try:
            seconds = float(told)
        except ValueError:
            return
        if 0 <= seconds < float("inf"):
            self._sums[name] = self._sums.get(name, 0.0) + seconds


def _append(path: Path, line: str) -> os.stat_result | None:
    """Add a line to a file; return what the file is then, or None if that was not possible."""
    try:
        codefiles.folder_for(path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
            return os.fstat(handle)
        finally:
            os.close(handle)
    except OSError as error:
        kernelfiles.warn_unwritable(path, error)
        return None


def _shorten(path: Path, found: dict[str, float]) -> None:
    """Write one line per kernel; what other processes add at the same time may be lost."""
    lines = "".join(f"{name} {seconds:.3f}\n" for name, seconds in found.items())
    kernelfiles.write_or_warn(path, lines.encode())


_times: dict[Path | None, Times] = {}
_making = forks.lock()


def here() -> Times:
    """Return the times of this process's cache directory."""
    root = kernelfiles.directory()
    with _making:
        if root not in _times:
            _times[root] = Times(root and root / FILE)
        return _times[root]


MOMENT = 0.2
"""Seconds after a task without its kernels in which the next one of the same computation begins."""


class Running:
    """Whether tasks run without their kernels: each begins, and ends.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks = 0
        self._ended = -math.inf

    def begin(self) -> None:
        """Note that one begins."""
        with self._changed:
            self._tasks += 1

    def end(self) -> None:
        """Note that one has ended."""
        with self._changed:
            self._tasks -= 1
            self._ended = monotonic()

    def wait_for_end(self, unless: Callable[[], bool]) -> None:
        """Return when none has run for a moment.

        Parameters
        ----------
        unless
            Returns whether it is to return before that; asked once in a moment.

        Examples
        --------
        >>> from gpusched.store.unfused import Running
        >>> running = Running()
        >>> running.begin()
        >>> running.wait_for_end(unless=lambda: True)
        >>> running.end()
        >>> running.wait_for_end(unless=lambda: False)
        """
        with self._changed:
            while not unless():
                left = MOMENT if self._tasks else MOMENT - (monotonic() - self._ended)
                if left <= 0:
                    return
                self._changed.wait(left)


running = Running()
"""Of this process."""


def _begin_again() -> None:
    """Forget the threads of the process that this one has been forked off."""
    global running
    running = Running()


os.register_at_fork(after_in_child=_begin_again)
