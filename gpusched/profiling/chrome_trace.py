"""A profile as a trace that Chrome and Perfetto read: the trace event format's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusched.profiling.timeline import Span

if TYPE_CHECKING:
    from gpusched.profiling.report import Profile


def trace(found: Profile) -> dict[str, Any]:
    """Return a profile in the trace event format, times in microseconds."""
    timeline = found.timeline
    events: list[dict[str, Any]] = []
    # From 1, and lanes behind all processes: Perfetto takes a thread 0, and one that is numbered as
    # its process, for the main thread, and draws both in one row.
    first = 1 + len(timeline.processes)
    for number, process in enumerate(timeline.processes, start=1):
        told = f"{process.name} ({process.host}, {process.pid})"
        events += [
            _named("process_name", number, number, told),
            _sorted("process", number, number, number),
        ]
    for number, lane in enumerate(timeline.lanes, start=first):
        events += [
            _named("thread_name", 1 + lane.process, number, lane.name),
            _sorted("thread", 1 + lane.process, number, number),
        ]
    for span in timeline.spans:
        pid = 1 + timeline.lanes[span.lane].process
        events.append(_complete(span, pid, first + span.lane))
    for at, what in found.changes:
        events.append(
            {"ph": "i", "name": what, "cat": "cluster", "s": "g", "pid": 1, "tid": 1,
             "ts": 1e6 * max(at, 0.0)}
        )  # fmt: skip
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"seconds": found.seconds, "missing": "; ".join(found.notes)},
    }


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _sorted(what: str, pid: int, tid: int, order: int) -> dict[str, Any]:
    name = f"{what}_sort_index"
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {"sort_index": order}}


def _complete(span: Span, pid: int, tid: int) -> dict[str, Any]:
    told = {
        "task": span.task,
        "bytes": span.nbytes,
        "lines": [f"{place}  {place.text}" for place in span.places],
        "detail": span.detail,
    }
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.kind,
        "pid": pid,
        "tid": tid,
        "ts": 1e6 * max(span.start, 0.0),
        "dur": 1e6 * max(span.end - max(span.start, 0.0), 0.0),
        "args": {key: value for key, value in told.items() if value},
    }
