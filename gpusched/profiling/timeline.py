"""Events of all processes -> spans on lanes, on one clock."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dask.utils import key_split

from gpusched.events import Event
from gpusched.inspection.places import Place
from gpusched.profiling.clocks import Offset
from gpusched.profiling.lines import Lines
from gpusched.profiling.process_report import Report

KINDS = ("graph", "scheduling", "task", "kernel", "unfused", "compile", "transfer", "compression",
         "spill", "unspill", "wait")  # fmt: skip
"""What a timeline shows."""

_SLACK = 1e-7
"""Seconds by which a span may stick out of the one around it: less than clocks resolve."""


@dataclass(frozen=True)
class Process:
    """One that recorded."""

    name: str
    host: str
    pid: int
    accuracy: float
    """Seconds by which its clock may be off, either way."""
    dropped: int
    """Events that had no room."""


@dataclass(frozen=True)
class Lane:
    """A row of the timeline: what one thread does, one thing after the other."""

    process: int
    """Number of the process."""
    name: str


@dataclass
class Span:
    """Something that took time."""

    kind: str
    """One of `KINDS`."""
    name: str
    start: float
    """Seconds since the profile began."""
    end: float
    lane: int
    """Number of the lane."""
    depth: int = 0
    """Spans around it on its lane."""
    inside: float = 0.0
    """Seconds of what is directly inside it."""
    task: str = ""
    """Key of the task."""
    nbytes: int = 0
    places: tuple[Place, ...] = ()
    """The user's lines."""
    detail: str = ""
    """What else there is to say."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass
class Timeline:
    """What happened, in time."""

    processes: list[Process] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    """By lane, then by their beginning."""
    queued: list[float] = field(default_factory=list)
    """Seconds that each task of a cluster waited for a thread of its worker."""


def build(
    reports: Iterable[tuple[Report, Offset]], began: float, ended: float, lines: Lines
) -> Timeline:
    """Return the timeline of what some processes reported."""
    found = Timeline()
    for number, (report, clock) in enumerate(reports):
        host, pid = report.process
        name = _process_name(report.names)
        found.processes.append(Process(name, host, pid, clock.accuracy, report.dropped))
        groups: defaultdict[tuple[Any, ...], list[Span]] = defaultdict(list)
        for event in map(Event._make, report.events):
            if event.end < began + clock.seconds or event.start > ended + clock.seconds:
                continue
            if event.kind == "queue":
                found.queued.append(event.end - event.start)
            else:
                span = _span(event, clock.seconds + began, lines)
                groups[_row(event)].append(span)
        for order, spans in sorted(groups.items()):
            _lay(found, Lane(number, order[1]), spans)
    return found


def _process_name(names: list[str]) -> str:
    told = [f"worker {name}" if name not in ("client", "scheduler") else name for name in names]
    return ", ".join(dict.fromkeys(told))


_NUMBER = re.compile(r"(\d+)$")
_POOLS = ("ThreadPoolExecutor", "Dask-")
"""How the names of threads that run tasks go; a worker's own name may stand before."""
_OFFLOAD = "Dask-Offload"
"""How distributed names the thread that spares its event loop what takes long, such as packing."""
_TITLES = {
    "MainThread": "main thread",
    "IO loop": "event loop",
    "receive": "received",
    "send": "sent",
    "gpusched-mover_0": "spilling",
}


def _row(event: Event) -> tuple[Any, ...]:
    """Return what distinguishes lanes, and orders them; the lane's name is the second."""
    name = event.thread_name
    if event.kind == "transfer":
        return 2, _TITLES[name], 0, 0
    found = _NUMBER.search(name)
    number = int(found[1]) if found else 0
    is_pool = any(word in name for word in _POOLS) and _OFFLOAD not in name
    if _OFFLOAD in name:
        name = "offload thread"
    title = _TITLES.get(name) or (f"thread {number}" if is_pool else name)
    on_device = event.kind == "kernel" and event.about[0] != "cpu"
    return (1 if is_pool else 0), f"{title}, GPU" if on_device else title, number, event.thread


def _span(event: Event, zero: float, lines: Lines) -> Span:
    name, detail, task = event.name, "", event.task
    places: tuple[Place, ...] = ()
    if event.kind == "task":
        name, places = key_split(task), lines.of_task(task)
    elif event.kind == "kernel":
        places = lines.of_kernel(task, event.about[1])
        detail = "" if event.about[0] == "cpu" else f"on {event.about[0]}"
    elif event.kind == "unfused":
        detail = "as NumPy runs it, since this kernel was not compiled"
    elif event.kind == "compile":
        detail = _ORIGINS[event.about]
    elif event.kind == "transfer":
        who, count = event.about
        detail = f"{count} chunk{'s' * (count != 1)} {'from' if name == 'receive' else 'to'} {who}"
    elif event.kind in ("spill", "unspill") and event.about is not None:
        task = event.about
    elif event.kind == "wait":
        detail = f"held by {event.about}" if event.about else ""
    told = "" if task is None else str(task)
    return Span(event.kind, name, event.start - zero, event.end - zero, 0, task=told,
                nbytes=event.nbytes, places=places, detail=detail)  # fmt: skip


_ORIGINS = {
    "compiled": "compiled now",
    "disk": "loaded from disk",
    "cluster": "received from another worker",
    "thread": "waited for another thread, which had it first",
}


def _lay(found: Timeline, lane: Lane, spans: list[Span]) -> None:
    """Put spans on a lane, and on further ones where they overlap without being nested."""
    rows: list[list[Span]] = []
    placed: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        number = next((k for k, row in enumerate(rows) if _fits(row, span)), len(rows))
        if number == len(rows):
            rows.append([])
            placed.append([])
        row = rows[number]
        span.depth = len(row)
        if row:
            row[-1].inside += span.seconds
        row.append(span)
        placed[number].append(span)
    for spans_of_row in placed:
        for span in spans_of_row:
            span.lane = len(found.lanes)
        found.lanes.append(lane)
        found.spans += spans_of_row


def _fits(row: list[Span], span: Span) -> bool:
    """Return whether a span is inside the last one of a row, or after it; drop what is over."""
    while row and row[-1].end <= span.start + _SLACK:
        row.pop()
    return not row or span.end <= row[-1].end + _SLACK


def overlapping(spans: Iterable[Span]) -> Iterator[tuple[float, float, int]]:
    """Yield (beginning, end, spans) of each stretch in which the same number of spans goes on.

    Examples
    --------
    >>> from gpusched.profiling.timeline import Span, overlapping
    >>> list(overlapping([Span("kernel", "a", 0, 2, 0), Span("kernel", "b", 1, 3, 1)]))
    [(0, 1, 1), (1, 2, 2), (2, 3, 1)]
    """
    spans = list(spans)
    edges = sorted([(s.start, 1) for s in spans] + [(s.end, -1) for s in spans])
    going, since = 0, 0.0
    for at, change in edges:
        if going and at > since:
            yield since, at, going
        going += change
        since = at
