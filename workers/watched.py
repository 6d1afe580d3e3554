"""What a worker shows while somebody looks at the dashboard: kernels, transfers, spilling.

The scheduler asks for it, for a few seconds at a time. Nothing is recorded otherwise.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from distributed import Worker, WorkerPlugin
from distributed.comm.core import CommClosedError
from tornado.ioloop import PeriodicCallback

from gpusched import events
from gpusched.store import background
from gpusched.store.statistics import statistics

WATCH = "gpusched-watch"
"""What a scheduler sends to a worker that somebody looks at."""
SEEN = "gpusched-seen"
"""What a worker that is looked at reports."""

INTERVAL = 0.5
"""Seconds between two messages."""
LISTED = 200
"""Entries at most in each list of a message but the spans, whose number the scheduler says."""
_HELD = 20_000
"""Events at most between two messages; further ones are only counted. About 100 bytes each."""
_TOKEN = "gpusched-dashboard"
_SHOWN = frozenset(["kernel", "unfused", "compile", "transfer", "compression", "spill", "unspill"])

Span = tuple[str, str, float, float, str, int]
"""Kind, name, beginning and end (the scheduler's clock, as `time.time`), thread, and bytes."""


class Watched(WorkerPlugin):
    """Reports to a worker's scheduler what happens here, for as long as that asks.

    Notes
    -----
    Used on the event loop only. A message has the longest spans, and the rest of them counted.

    Examples
    --------
    >>> import gpusched
    >>> from gpusched import events
    >>> with gpusched.local():  # Nobody looks.
    ...     events.active
    ()
    """

    name = "gpusched-watched"
    _worker: Worker

    def setup(self, worker: Worker) -> None:
        """Let the scheduler ask, by a worker's connections."""
        self._worker = worker
        self._until = 0.0
        self._spans = 0
        self._recording: events.Recording | None = None
        self._told: dict[str, Any] | None = None
        self._last: dict[str, Any] = {}
        self._callback = PeriodicCallback(self._tell, 1e3 * INTERVAL)
        worker.stream_handlers[WATCH] = self.watch

    def watch(self, seconds: float, spans: int, again: bool = False) -> None:
        """Report what happens for so many seconds from now on, and so many spans a message.

        Parameters
        ----------
        seconds, spans
            How long, and how much.
        again
            Whether the counters are reported although they have been.
        """
        self._until = time.monotonic() + seconds
        self._spans = spans
        if again:
            self._told = None
        if self._recording is None:
            self._recording = events.start(_TOKEN, _HELD)
            self._transfers()
            self._callback.start()
            self._tell()

    def teardown(self, worker: Worker) -> None:
        """Record nothing any more."""
        self._stop()

    def _stop(self) -> None:
        if self._recording is not None:
            self._callback.stop()
            events.stop(_TOKEN)
            self._recording = self._told = None

    def _tell(self) -> None:
        if time.monotonic() > self._until:
            self._stop()
            return
        try:
            self._worker.batched_stream.send({"op": SEEN, **self._message()})
        except CommClosedError:
            self._stop()

    def _message(self) -> dict[str, Any]:
        assert self._recording is not None
        taken, dropped = _take(self._recording)
        shown = [event for event in taken if event.kind in _SHOWN]
        # As distributed's own log of transfers has it.
        clock = time.time() - time.perf_counter() + self._worker.scheduler_delay
        spans = [_span(event, clock) for event in shown] + self._transfers()
        longest = sorted(spans, key=lambda span: span[2] - span[3])[: self._spans]
        counters = _counters()
        message = {
            "process": [socket.gethostname(), os.getpid()],
            "kernels": _kernels(shown),
            "busy": _busy(shown),
            "spans": longest,
            "left_out": len(spans) - len(longest) + dropped,
        }
        if counters != self._told:
            self._told = message["counters"] = counters
        return message

    def _transfers(self) -> list[Span]:
        """Return the transfers since the last time, from the logs that are kept in any case."""
        found = []
        for name, log in (
            ("receive", self._worker.transfer_incoming_log),
            ("send", self._worker.transfer_outgoing_log),
        ):
            for entry in reversed(log):
                if entry is self._last.get(name):
                    break
                nbytes = int(entry["total"] or 0)
                found.append(("transfer", name, entry["start"], entry["stop"], name, nbytes))
            self._last[name] = log[-1] if log else None
        return found


def _take(recording: events.Recording) -> tuple[list[events.Event], int]:
    """Return what was recorded since the last time, and how many events had no room."""
    taken = events.taken(recording)
    # Threads may have appended meanwhile, at the end.
    del recording.events[: len(taken)]
    dropped, recording.dropped = recording.dropped, 0
    return taken, dropped


def _span(event: events.Event, clock: float) -> Span:
    return (event.kind, event.name, event.start + clock, event.end + clock,
            event.thread_name, event.nbytes)  # fmt: skip


def _kernels(shown: Iterable[events.Event]) -> list[tuple[str, str, int, float, int]]:
    """Return (name, device, launches, seconds, bytes) of kernels; the longest by name."""
    sums: dict[tuple[str, str], list[Any]] = {}
    for event in shown:
        if event.kind == "kernel":
            found = sums.setdefault((event.name, event.about[0]), [0, 0.0, 0])
            found[0] += 1
            found[1] += event.end - event.start
            found[2] += event.nbytes
    rows = ((*key, *found) for key, found in sums.items())
    return sorted(rows, key=itemgetter(3), reverse=True)[:LISTED]


def _busy(shown: Iterable[events.Event]) -> dict[str, float]:
    """Return the seconds in which at least one kernel ran, by device."""
    busy: dict[str, float] = {}
    until: dict[str, float] = {}
    for event in sorted(shown, key=itemgetter(2)):
        if event.kind == "kernel":
            device = event.about[0]
            began = max(event.start, until.get(device, event.start))
            busy[device] = busy.get(device, 0.0) + max(0.0, event.end - began)
            until[device] = max(began, event.end)
    return busy


def _counters() -> dict[str, Any]:
    """Return what this process has counted since it began, as plain lists and numbers."""
    total = statistics()
    return {
        "tasks": total.tasks,
        "fused_tasks": total.fused_tasks,
        "launches": total.launches,
        "kernels": _most(total.kernels),
        "breaks": _reasons(total.breaks),
        "device_tasks": total.device_tasks,
        "host_tasks": total.host_tasks,
        "host_reasons": _reasons(total.host_reasons),
        "unfused_tasks": total.unfused_tasks,
        "compiling": _compiling(),
    }


def _reasons(counter: Counter[Any]) -> list[list[Any]]:
    """Return operation, code, text and times of the most frequent reasons."""
    return [
        [operation, reason.kind.name, str(reason), times]
        for (operation, reason), times in _most(counter)
    ]


def _compiling() -> list[list[Any]]:
    """Return name, seconds spent without, and urgency of kernels that are being compiled."""
    pending = background.pending()[:LISTED]
    return [[each.name, round(each.spent, 2), each.urgent] for each in pending]


def _most(counter: Counter[Any]) -> list[Any]:
    return [list(entry) for entry in counter.most_common(LISTED)]
