"""Waiting for what has no event to wait on, however slow the machine is."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import psutil

PATIENCE = 120.0
"""Seconds after which what was waited for counts as never coming.

A bound for tests that would hang, and no claim of how long anything takes: a machine may be ten
times slower than another.
"""
_PAUSE = 0.02

Found = TypeVar("Found")


def wait_for(condition: Callable[[], Found], patience: float = PATIENCE) -> Found:
    """Wait until a condition holds, and return what it gave."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        # Other threads and processes get their turn.
        threading.Event().wait(_PAUSE)
    return found


def address_in(file: Path) -> str:
    """Return the address in a scheduler's file when the whole of it is written."""

    def address() -> str | None:
        try:
            return str(json.loads(file.read_text())["address"])
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    return str(wait_for(address))


def wait_gone(processes: Iterable[psutil.Process], patience: float = PATIENCE) -> None:
    """Wait until processes have ended; those that do not are killed, and named."""
    _, alive = psutil.wait_procs(list(processes), timeout=patience)
    told = [_describe(process) for process in alive]
    for process in alive:
        process.kill()
    assert not told


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes, and return when they are gone.

    Not Python's trackers of semaphores: they remove those of the killed from /dev/shm, and end.
    """
    found = list(processes)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            if not is_tracker(process):
                process.kill()
    wait_gone(found)


def is_tracker(process: psutil.Process) -> bool:
    """Return whether it is Python's tracker of semaphores, which ends by itself."""
    return "resource_tracker" in _describe(process)


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.NoSuchProcess:
        return f"{process.pid}, which has ended by now"
