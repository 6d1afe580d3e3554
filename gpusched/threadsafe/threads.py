"""What is known of each thread: what it waits for, which task it runs, whether it lives."""

from __future__ import annotations

import sys
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusched.threadsafe.waits import Wait

_FRAMES = 6
"""Innermost frames of a stack that a message shows, those of this package left out."""


class _Life:
    """Referred to by a thread alone, so that it goes when the thread does."""

    __slots__ = ("__weakref__",)


class Thread:
    """One thread of this process.

    Notes
    -----
    Written by its own thread, but for ``waiting``, which `waits` writes under its lock. A thread's
    identifier is given to another one after its end, so records are compared, never identifiers.
    """

    __slots__ = ("_life", "answers_loop", "ident", "name", "task", "waiting")

    def __init__(self, life: _Life) -> None:
        self.ident = threading.get_ident()
        self.name = threading.current_thread().name
        self.task: Any = ""
        """The key of the worker's task that it runs, or empty."""
        self.answers_loop = 0
        """Number of workers whose event loop runs here, and must never wait."""
        self.waiting: Wait | None = None
        self._life = weakref.ref(life)

    def lives(self) -> bool:
        """Return whether the thread has not ended."""
        return self._life() is not None

    def stack(self) -> str:
        """Return where the thread is, as text."""
        frame = sys._current_frames().get(self.ident) if self.lives() else None
        if frame is None:
            return "    (it has ended)\n"
        found = [
            entry
            for entry in traceback.extract_stack(frame)
            if "/gpusched/threadsafe/" not in entry.filename
        ]
        return "".join(traceback.format_list(found[-_FRAMES:]))

    def __str__(self) -> str:
        return f"thread {self.name!r}" + (f" in task {self.task!r}" if self.task else "")


class _Local(threading.local):
    def __init__(self) -> None:
        self.life = _Life()
        self.record = Thread(self.life)


_local = _Local()


def current() -> Thread:
    """Return the calling thread."""
    return _local.record


def answer_loop(answers: bool = True) -> None:
    """Say that the calling thread runs a worker's event loop, which must never wait for a policy.

    Where a call would wait, it raises `BlockedLoopError` instead.
    """
    current().answers_loop += 1 if answers else -1
