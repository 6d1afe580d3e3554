"""A worker's tasks share libraries that are not thread-safe by `gpusched.threadsafe`'s policies."""

from __future__ import annotations

import weakref
from typing import Any

from distributed import WorkerPlugin

from gpusched import config, threadsafe
from gpusched.threadsafe import threads, waits

_workers: weakref.WeakSet[Any] = weakref.WeakSet()
_protected = False
"""Whether it was a worker that protected this process's libraries."""


class ThreadPolicies(WorkerPlugin):
    """Protects known libraries in a worker's process, and its event loop from waiting for them."""

    name = "gpusched-thread-policies"

    def setup(self, worker: Any) -> None:
        """Protect them from now on."""
        global _protected
        threads.answer_loop()
        _workers.add(worker)
        waits.is_cancelled = is_cancelled
        if config.get("threadsafe.enabled") and threadsafe.protect():
            _protected = True

    def teardown(self, worker: Any) -> None:
        """Undo `setup`; the libraries, once the last worker of this process stops."""
        global _protected
        _workers.discard(worker)
        threads.answer_loop(False)
        if _protected and not _workers:
            _protected = False
            threadsafe.unprotect()


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
