"""How many tasks are done: one line on a terminal, and a line now and then in a file or pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from distributed import Client, Scheduler

from gpusched.store.service import client as service

_ERASE = "\r\x1b[K"
_WIDTH = 30
_PENDING = ("waiting", "queued", "processing", "no-worker")
_FIRST, _LONGEST = 10.0, 60.0
"""Seconds until the first line in a file, and between two lines at most; they double."""


def say(text: str) -> None:
    """Print what takes its time, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"gpusched: {text}", file=sys.stderr)


@contextmanager
def progress(client: Client, interval: float = 0.2, first: float = _FIRST) -> Iterator[None]:
    """Show progress on stderr while the block runs.

    Parameters
    ----------
    client
        A client that is not asynchronous.
    interval
        Seconds between two looks at the scheduler.
    first
        Seconds of computing before the first line, where stderr is not a terminal.
    """
    line = _Line(sys.stderr) if sys.stderr.isatty() else _Lines(sys.stderr, first)
    if isinstance(line, _Lines):
        interval = max(interval, first / 10)
    stop = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(client, line, stop, interval), name="gpusched progress", daemon=True
    )
    stdout = sys.stdout
    if isinstance(line, _Line):
        sys.stdout = _Erasing(stdout, line)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join(timeout=5)
        line.erase()
        if isinstance(sys.stdout, _Erasing):
            sys.stdout = stdout


def task_counts(dask_scheduler: Scheduler) -> tuple[int, int]:
    """Return how many tasks were ever finished, and how many are still to do."""
    done: int = sum(p.state_counts["memory"] for p in dask_scheduler.task_prefixes.values())
    states = [group.states for group in dask_scheduler.task_groups.values()]
    return done, sum(n for of in states for state, n in of.items() if state in _PENDING)


def bar(done: int, pending: int, seconds: float, compiling: int = 0) -> str:
    """Return the line that shows these counts.

    Parameters
    ----------
    done, pending
        Tasks.
    seconds
        Since the first.
    compiling
        Kernels that the compile service of this machine has still to compile.

    Examples
    --------
    >>> from gpusched.cli.progress import bar
    >>> bar(5, 15, 2.04)
    '[#######.......................] 5 of 20 tasks, 2.0 s'
    >>> bar(5, 15, 2.04, compiling=3)
    '[#######.......................] 5 of 20 tasks, 2.0 s, compiling 3 kernels beside them'
    """
    total = done + pending
    filled = _WIDTH * done // total if total else 0
    return f"[{'#' * filled:.<{_WIDTH}}] {_counts(done, pending, seconds, compiling)}"


def _counts(done: int, pending: int, seconds: float, compiling: int) -> str:
    beside = f", compiling {compiling} kernel{'s' * (compiling > 1)} beside them"
    text = f"{done:,} of {done + pending:,} tasks, {seconds:.1f} s"
    return text + beside if compiling else text


def _watch(client: Client, line: _Line | _Lines, stop: threading.Event, interval: float) -> None:
    before, started = None, time.monotonic()
    while not stop.wait(interval):
        try:
            done, pending = client.run_on_scheduler(task_counts)
        except Exception:  # noqa: BLE001
            # The scheduler is going away, or has no gpusched to count with: a lost progress line
            # must not disturb the script, and the script meets the same error where it matters.
            return
        if before is None or not pending:
            before, started = done, time.monotonic()
        if pending:
            told = service.status() or {"compilations": ()}
            seconds = time.monotonic() - started
            line.draw(done - before, pending, seconds, len(told["compilations"]))
        else:
            line.erase()


class _Line:
    """The terminal's last line. Thread-safe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._drawn = False

    def draw(self, done: int, pending: int, seconds: float, compiling: int) -> None:
        with self._lock:
            self._stream.write(_ERASE + bar(done, pending, seconds, compiling))
            self._stream.flush()
            self._drawn = True

    def erase(self) -> None:
        with self._lock:
            if self._drawn:
                self._stream.write(_ERASE)
                self._stream.flush()
                self._drawn = False


class _Lines:
    """Lines of a file or pipe: one after some seconds, and then ever fewer. For one thread."""

    def __init__(self, stream: TextIO, first: float) -> None:
        self._stream = stream
        self._pause = first
        self._next = time.monotonic() + first

    def draw(self, done: int, pending: int, seconds: float, compiling: int) -> None:
        if time.monotonic() < self._next:
            return
        print(f"gpusched: {_counts(done, pending, seconds, compiling)}", file=self._stream)
        self._pause = min(2 * self._pause, _LONGEST)
        self._next = time.monotonic() + self._pause

    def erase(self) -> None:
        """Leave what is written."""


class _Erasing:
    """A stream that erases the line before each write, so that the two do not mix."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream = stream
        self._line = line

    def write(self, text: str) -> int:
        self._line.erase()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
