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
    for number, process in enumerate(timeline.processes):
        told = f"{process.name} ({process.host}, {process.pid})"
        events += [_named("process_name", number, 0, told), _sorted("process", number, 0, number)]
    for number, lane in enumerate(timeline.lanes):
        events += [
            _named("thread_name", lane.process, number, lane.name),
            _sorted("thread", lane.process, number, number),
        ]
    for span in timeline.spans:
        events.append(_complete(span, timeline.lanes[span.lane].process))
    for at, what in found.changes:
        events.append(
            {"ph": "i", "name": what, "cat": "cluster", "s": "g", "pid": 0, "tid": 0,
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


def _complete(span: Span, pid: int) -> dict[str, Any]:
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
        "tid": span.lane,
        "ts": 1e6 * max(span.start, 0.0),
        "dur": 1e6 * max(span.end - max(span.start, 0.0), 0.0),
        "args": {key: value for key, value in told.items() if value},
    }
