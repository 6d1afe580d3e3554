"""dask's schedulers in this process: their tasks, and the time they take themselves."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import dask.local
import dask.multiprocessing
import dask.threaded

from gpusched import events, forks
from gpusched.profiling import profiled_tasks

_MODULES: tuple[Any, ...] = (dask.local, dask.threaded, dask.multiprocessing)
"""Each calls `get_async` by a name of its own."""

_lock = forks.lock()
_users = 0
_original = dask.local.get_async


def watch() -> None:
    """Have computations of this process noted that begin from now on.

    dask's callbacks would not do: they are one process-wide set, which is empty for a computation
    that begins while another one runs.
    """
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _replace(_original, get_async)


def unwatch() -> None:
    """End what one `watch` began."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _replace(get_async, _original)


def _replace(old: Any, new: Any) -> None:
    for module in _MODULES:
        if module.get_async is old:
            module.get_async = new


def get_async(submit: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what `dask.local.get_async` does, and note it."""
    if not events.active:
        return _original(submit, *args, **kwargs)
    # Other processes are not recorded; arguments are pickled for them alone.
    elsewhere = "dumps" in kwargs
    for recording in events.active if elsewhere else ():
        recording.elsewhere += 1
    computation = Computation(submit, elsewhere)
    try:
        return _original(computation.submit, *args, **kwargs)
    finally:
        computation.end()


class Computation:
    """One call of `get_async`, whose own work is between its tasks' ends and its submissions.

    Notes
    -----
    `submit` and `end` are called by one thread; tasks end in any.
    """

    def __init__(self, submit: Callable[..., Any], elsewhere: bool = False) -> None:
        self._submit = submit
        self._elsewhere = elsewhere
        self._name = "order tasks"
        self._since: float | None = perf_counter()
        """When there was something to do for the scheduler; None while it waits for tasks."""

    def submit(self, batch: Callable[..., Any], calls: list[Any]) -> Any:
        """Submit some tasks, as ``batch`` runs them."""
        self._note()
        if not self._elsewhere:
            return self._submit(self._run, batch, calls)
        future = self._submit(batch, calls)
        future.add_done_callback(self._ended)
        return future

    def _run(self, batch: Callable[[list[Any]], list[Any]], calls: list[Any]) -> list[Any]:
        """Run tasks as `dask.local.batch_execute_tasks` does, and note each."""
        if len(calls) > 1:
            return [result for call in calls for result in self._run(batch, [call])]
        results = profiled_tasks.run(calls[0][0], batch, calls) if events.active else batch(calls)
        if self._since is None:
            self._since = perf_counter()
        return results

    def _ended(self, future: Any) -> None:
        if self._since is None:
            self._since = perf_counter()

    def _note(self) -> None:
        since, self._since = self._since, None
        if since is not None and events.active:
            events.record("scheduling", self._name, since, perf_counter())
        self._name = "next tasks"

    def end(self) -> None:
        """Note what the scheduler has done since the last task's end."""
        self._name = "finish"
        self._note()
