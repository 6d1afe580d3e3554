"""What a scheduler's workers show while somebody looks; asks them for it as long as that is so."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from distributed import Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps

from gpusched.adapters.distributed import in_background
from gpusched.dashboard import answers
from gpusched.dashboard.fusion_counts import Fusion, Process
from gpusched.dashboard.launches import KEPT, Launches
from gpusched.newest import Newest
from gpusched.workers import version_check
from gpusched.workers.watched import SEEN, WATCH

logger = logging.getLogger(__name__)

LEASE = 10.0
"""Seconds that workers go on to report after the last look."""
SPANS = 5000
"""Spans that are kept, of all workers; the newest."""
_A_MESSAGE = 1000
"""Spans that all workers together may send at a time."""
_LEAST = 10
"""Spans that each may."""
_SOURCES = 50
"""Sources that are kept."""


class Observer(SchedulerPlugin):
    """Keeps what a dashboard shows of kernels, fusion, transfers and spilling.

    Notes
    -----
    Used on the scheduler's event loop only. All it keeps is bounded.
    """

    name = "gpusched-dashboard"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.launches = Launches()
        self.fusion = Fusion()
        self.spans: deque[tuple[str, Sequence[Any]]] = deque(maxlen=SPANS)
        """Names of workers, each with a `gpusched.workers.watched.Span`."""
        self.left_out = 0
        """Spans that were too many to send."""
        self.sources: Newest[tuple[str, str], str] = Newest(_SOURCES)
        """By a kernel's name and device; empty for one that no worker knows."""
        self._asked = -LEASE
        self._ran: Newest[tuple[str, str], str] = Newest(KEPT)
        """The worker that last ran a kernel, by its name and device."""
        self._places: dict[tuple[str, str], str] = {}
        """The worker that last ran any, by its host and device."""
        self._processes: dict[str, Process] = {}
        """By worker, of those that have reported and are still there."""
        scheduler.stream_handlers |= {
            SEEN: self._seen,
            answers.SOURCE: self._source,
            answers.LIMIT: self._limit,
        }

    def look(self) -> None:
        """Have workers report what happens, for a few seconds; to be called by whoever shows it."""
        now = time.monotonic()
        if now - self._asked < LEASE / 3:
            return
        # After a pause, what they counted before may have been for a scheduler before this one.
        again = now - self._asked > LEASE
        self._asked = now
        workers = self._workers()
        for worker in workers:
            self._watch(worker, len(workers), again)
        self._measure()

    def ask_source(self, name: str, device: str) -> None:
        """Have a worker send the source of a kernel; it is among `sources` soon after."""
        worker = self._ran.get((name, device)) or next(iter(self._workers()), None)
        if worker is None or worker not in self.scheduler.workers:
            self.sources[name, device] = ""
            return
        self._run(worker, answers.tell_source, name=name, device=device)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Have a worker report, too, that joins while somebody looks."""
        if time.monotonic() - self._asked < LEASE and self._is_ours(worker):
            self._watch(worker, len(scheduler.workers), True)

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: object) -> None:
        """Let go of the kernels that only a process has waited for which has ended."""
        process = self._processes.pop(worker, None)
        if process is not None and process not in self._processes.values():
            self.fusion.end(process)

    def update_graph(self, scheduler: Scheduler, *, tasks: list[Any], **kwargs: Any) -> None:
        """Count the tasks of a graph."""
        known = scheduler.tasks
        self.fusion.add((key, known[key].run_spec) for key in tasks if key in known)

    def _workers(self) -> list[str]:
        return [worker for worker in self.scheduler.workers if self._is_ours(worker)]

    def _is_ours(self, worker: str) -> bool:
        return version_check.HANDSHAKE_KEY in self.scheduler.workers[worker].extra

    def _watch(self, worker: str, workers: int, again: bool) -> None:
        spans = max(_LEAST, _A_MESSAGE // workers)
        message = {"op": WATCH, "seconds": LEASE, "spans": spans, "again": again}
        self.scheduler.worker_send(worker, message)

    def _measure(self) -> None:
        """Ask for the limits that are not known yet; measured only where nothing runs."""
        for host, device in self.launches.places() - self.launches.limits.keys():
            worker = self._places.get((host, device))
            if worker in self.scheduler.workers:
                self._run(worker, answers.tell_limit, device=device, measure=self._is_idle(worker))

    def _is_idle(self, worker: str) -> bool:
        workers = self.scheduler.workers
        host = workers[worker].host
        return not any(ws.processing for ws in workers.values() if ws.host == host)

    def _run(self, worker: str, function: Callable[..., Any], **kwargs: Any) -> None:
        """Run a function on a worker, and do not wait for it."""
        message = {
            "op": "run",
            "function": dumps(function),
            "args": dumps(()),
            "kwargs": dumps(kwargs),
        }
        if self.scheduler.status == Status.running:
            in_background(self.scheduler, self._send, worker, message)

    async def _send(self, worker: str, message: dict[str, Any]) -> None:
        await self.scheduler.broadcast(msg=message, workers=[worker], on_error="ignore")

    def _seen(
        self,
        worker: str,
        process: Sequence[Any],
        kernels: list[Any],
        busy: dict[str, float],
        spans: list[Any],
        left_out: int,
        counters: dict[str, Any] | None = None,
    ) -> None:
        """Take what a worker reports."""
        if worker not in self.scheduler.workers:
            return
        host, pid = self._processes[worker] = process[0], process[1]
        for name, device, *_ in kernels:
            self._ran[name, device] = self._places[host, device] = worker
        self.launches.add((host, pid), kernels, busy)
        label = str(self.scheduler.workers[worker].name)
        self.spans.extend((label, span) for span in spans)
        self.left_out += left_out
        if counters is not None:
            self.fusion.tell((host, pid), counters)

    def _source(self, worker: str, name: str, device: str, source: str) -> None:
        self.sources[name, device] = source

    def _limit(self, worker: str, host: str, device: str, limit: list[float] | None) -> None:
        if limit is not None:
            one, every = limit
            self.launches.limits[host, device] = one, every


def observer_of(scheduler: Scheduler) -> Observer:
    """Return the observer of a scheduler that shows the pages."""
    found: Any = scheduler.plugins[Observer.name]
    return found
