"""What processes take while a program runs, seen from outside, as the system counts it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.benchmarks.memory.groups import is_worker

_PAUSE = 0.02
_FIND = 25
"""Looks between two searches for processes."""


@dataclass
class Watch:
    """The workers' processes among all that a process has started, directly or not.

    Parameters
    ----------
    root
        The process.
    on_look
        Called with this after each look, on the watching thread.
    """

    root: psutil.Process
    on_look: Callable[[Watch], None] = lambda watch: None
    resident: int = 0
    """The most bytes that any of them has ever had in memory."""
    processes: list[psutil.Process] = field(default_factory=list)
    """The workers' processes in the order in which they were seen, ended ones too."""
    written: dict[int, int] = field(default_factory=dict)
    """Bytes written to disk, by process."""

    @property
    def workers(self) -> int:
        """The number of workers' processes that there have been."""
        return len(self.processes)

    def __enter__(self) -> Watch:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        count = 0
        while not self._end.wait(_PAUSE):
            if count % _FIND == 0:
                self._find()
            count += 1
            for process in self.processes:
                self._look(process)
            self.on_look(self)

    def _look(self, process: psutil.Process) -> None:
        self.resident = max(self.resident, most_resident(process.pid))
        with contextlib.suppress(psutil.Error):
            self.written[process.pid] = process.io_counters().write_bytes

    def _find(self) -> None:
        with contextlib.suppress(psutil.Error):
            for process in self.root.children(recursive=True):
                if process not in self.processes and _is_worker(process):
                    self.processes.append(process)


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return is_worker(process.cmdline())
    return False


def most_resident(pid: int) -> int:
    """Return the most bytes that a process has ever had in memory; 0 if it has ended.

    Examples
    --------
    >>> import os
    >>> from tests.benchmarks.memory.watch import most_resident
    >>> most_resident(os.getpid()) > 1 << 20
    True
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
