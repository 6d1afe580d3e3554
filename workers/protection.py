"""A worker's tasks share libraries that are not thread-safe by `gpusched.threadsafe`'s policies."""

from __future__ import annotations

import weakref
from typing import Any

from gpusched import config, threadsafe
from gpusched.threadsafe import threads, waits

_workers: weakref.WeakSet[Any] = weakref.WeakSet()


def start(worker: Any) -> None:
    """Protect known libraries in a worker's process, and its event loop from waiting for them.

    To be called on the worker's event loop, as `stop` is.
    """
    threads.answer_loop()
    _workers.add(worker)
    waits.is_cancelled = is_cancelled
    if config.get("threadsafe.enabled"):
        threadsafe.protect()


def stop(worker: Any) -> None:
    """Undo `start`, but for the libraries, which other workers of this process may use."""
    if worker in _workers:
        _workers.discard(worker)
        threads.answer_loop(False)


def is_cancelled(key: Any) -> bool:
    """Return whether a task that runs in this process is not wanted any more.

    Examples
    --------
    >>> from gpusched.workers.protection import is_cancelled
    >>> is_cancelled("no such task")
    False
    """
    tasks = [worker.state.tasks.get(key) for worker in list(_workers)]
    states = {task.state for task in tasks if task is not None}
    return bool(states) and states <= {"cancelled", "forgotten"}
