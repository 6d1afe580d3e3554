"""Profiles made of events that are given."""

from __future__ import annotations

from typing import Any

from gpusched.profiling import Profile
from gpusched.profiling.clocks import Offset
from gpusched.profiling.process_report import Gathered, Report


def event(kind: str, name: str, start: float, end: float, **more: Any) -> tuple[Any, ...]:
    """Return an event as `gpusched.events` keeps it."""
    thread = more.get("thread", "MainThread")
    return (kind, name, start, end, hash(thread), thread, more.get("task"),
            more.get("nbytes", 0), more.get("about"))  # fmt: skip


def kernel(start: float, end: float, nbytes: int = 0, **more: Any) -> tuple[Any, ...]:
    """Return a launch."""
    about = (more.pop("device", "cpu"), ())
    return event("kernel", more.pop("name", "add"), start, end, nbytes=nbytes, about=about, **more)


def profile(
    *reports: tuple[str, list[Any]], seconds: float = 10.0, gathered: Gathered | None = None
) -> Profile:
    """Return the profile of some processes, by name, each on the host ``here``."""
    told = [
        (Report(("here", number), [name], list(events)), Offset(0.0, 0.0))
        for number, (name, events) in enumerate(reports)
    ]
    found = Profile()
    found._fill(told, {}, 0.0, seconds, gathered or Gathered())
    return found
