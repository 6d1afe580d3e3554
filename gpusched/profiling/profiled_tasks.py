"""A task as it is run while somebody profiles: its thread notes when, and which task it was."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from gpusched import events


class Timed:
    """Stands for a task's specification in `distributed.worker`, which calls it with the inputs."""

    is_coro = False
    is_timed = True
    """Also of what stands for this."""

    def __init__(self, spec: Any, key: Any) -> None:
        self.spec = spec
        self._key = key

    def __call__(self, *values: Any) -> Any:
        """Run the task, and note its times if events are recorded."""
        return run(self._key, self.spec, *values) if events.active else self.spec(*values)

    def __repr__(self) -> str:
        return repr(self.spec)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Asked before there is a specification, when a copy is made.
            raise AttributeError(name)
        return getattr(self.spec, name)


def run(key: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function as the task of that key, and note it, however it ends."""
    thread = events.thread
    outer, thread.task = thread.task, key
    started = perf_counter()
    try:
        return function(*args)
    finally:
        events.record("task", "", started, perf_counter())
        thread.task = outer
