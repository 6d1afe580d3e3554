"""What records on a cluster's workers and on its scheduler; distributed's plugins."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from time import perf_counter
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from gpusched import events
from gpusched.adapters.distributed import in_background
from gpusched.profiling.process_report import Report, plugin_name, process
from gpusched.profiling.profiled_tasks import Timed


class Watch(WorkerPlugin):
    """Records on a worker, from the moment it is registered or the worker joins."""

    def __init__(self, token: str, limit: int) -> None:
        self.name = plugin_name(token)
        self._token = token
        self._limit = limit

    def setup(self, worker: Any) -> None:
        """Begin."""
        self._worker = worker
        self._ready: dict[Any, float] = {}
        self._before = dict(worker.digests_total)
        self._joined = perf_counter()
        events.start(self._token, self._limit)

    def teardown(self, worker: Any) -> None:
        """End; called when the profile ends, and when the worker does."""
        events.stop(self._token)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Note how long a task waits for a thread, and have the thread note the task."""
        if finish == "ready":
            self._ready[key] = perf_counter()
        elif finish == "executing":
            since = self._ready.pop(key, None)
            if since is not None and events.active:
                events.record_since("queue", "", since, about=key)
            task = self._worker.state.tasks.get(key)
            spec = task and task.run_spec
            if spec is None or spec.is_coro or getattr(spec, "is_timed", False):
                return
            task.run_spec = Timed(spec, key)
        else:
            self._ready.pop(key, None)

    def report(self) -> Report:
        """Return what was recorded; of the whole process, whichever of its workers is asked."""
        recording = events.recording_of(self._token)
        worker = self._worker
        found = Report(process(), [str(worker.name)], joined=self._joined)
        found.events = _transfers(worker, self._joined)
        found.totals = _totals(worker.digests_total, self._before)
        if recording is not None:
            found.events += recording.events
            found.dropped = recording.dropped
        return found


def worker_report(token: str, dask_worker: Any) -> Report | None:
    """Return what a worker recorded, None if it does not record; to be run on it."""
    plugin = dask_worker.plugins.get(plugin_name(token))
    return plugin.report() if plugin is not None else None


def _transfers(worker: Any, since: float) -> list[tuple[Any, ...]]:
    """Return the worker's transfers as events, from the logs that it keeps in any case."""
    clock = time.time() - perf_counter()
    found = []
    for what, log, delay in (
        ("receive", worker.transfer_incoming_log, worker.scheduler_delay),
        ("send", worker.transfer_outgoing_log, worker.scheduler_delay),
    ):
        for entry in list(log):
            start, stop = entry["start"] - delay - clock, entry["stop"] - delay - clock
            if stop >= since:
                about = (entry["who"], len(entry["keys"]))
                found.append(
                    ("transfer", what, start, stop, 0, what, None, entry["total"] or 0, about)
                )
    return found


def _totals(after: Any, before: dict[Any, float]) -> dict[str, float]:
    """Return the seconds that distributed counted meanwhile, by activity."""
    found: dict[str, float] = {}
    for label, value in dict(after).items():
        if isinstance(label, tuple) and label[-1] == "seconds":
            spent = value - before.get(label, 0.0)
            name = f"{label[0]} {label[-2]}"
            if spent > 0 and label[-2] in _ACTIVITIES:
                found[name] = found.get(name, 0.0) + spent
    return found


_ACTIVITIES = frozenset(
    ["serialize", "deserialize", "compress", "decompress", "disk-read", "disk-write", "network"]
)


class WatchScheduler(SchedulerPlugin):
    """Records on a scheduler what each message costs it, and which workers come and go.

    Parameters
    ----------
    token
        The profile's.
    limit
        Events at most.
    client
        Identifier of the client that profiles; when it goes, so does the profile.
    """

    def __init__(self, token: str, limit: int, client: str) -> None:
        self.name = plugin_name(token)
        self._token = token
        self._limit = limit
        self._client = client

    async def start(self, scheduler: Any) -> None:
        """Begin."""
        self._scheduler = scheduler
        self._joined = perf_counter()
        self.changes: list[tuple[float, str, str]] = []
        _time_messages(scheduler)
        events.start(self._token, self._limit)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Note that a worker has joined."""
        self.changes.append((perf_counter(), "joined", worker))

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Note that a worker has left."""
        self.changes.append((perf_counter(), "left", worker))

    def remove_client(self, scheduler: Any, client: str) -> None:
        """End the profile of a client that went without ending it."""
        if client == self._client and self.name in scheduler.plugins:
            self.end()
            scheduler.remove_plugin(self.name)
            if self.name in scheduler.worker_plugins:
                in_background(
                    scheduler, scheduler.unregister_worker_plugin, comm=None, name=self.name
                )

    async def close(self) -> None:
        """End with the scheduler."""
        self.end()

    def end(self) -> None:
        """End; idempotent."""
        if self._token:
            events.stop(self._token)
            self._token = ""

    def report(self) -> tuple[Report, list[tuple[float, str, str]]]:
        """Return what was recorded, and when workers joined and left; then end."""
        recording = events.recording_of(self._token)
        found = Report(process(), ["scheduler"], joined=self._joined)
        if recording is not None:
            found.events, found.dropped = list(recording.events), recording.dropped
        return found, self.changes


def scheduler_report(token: str, dask_scheduler: Any) -> Any:
    """Return what a scheduler recorded, and end it there; to be run on it."""
    name = plugin_name(token)
    plugin = dask_scheduler.plugins.get(name)
    if plugin is None:
        return None
    found = plugin.report()
    plugin.end()
    dask_scheduler.remove_plugin(name)
    return found


def _time_messages(scheduler: Any) -> None:
    """Have the scheduler's handling of each message noted, for as long as somebody profiles.

    The handlers stay as they are made here: without a profile they cost an attribute test more.
    """
    for op, handler in list(scheduler.stream_handlers.items()):
        if not hasattr(handler, "_gpusched_timed") and not inspect.iscoroutinefunction(handler):
            scheduler.stream_handlers[op] = _timed(op, handler)


def _timed(op: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def timed(**message: Any) -> Any:
        if not events.active:
            return handler(**message)
        started = perf_counter()
        try:
            return handler(**message)
        finally:
            events.record_since("scheduling", op, started)

    timed._gpusched_timed = True  # type: ignore[attr-defined]
    return timed
