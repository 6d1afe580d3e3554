"""The table of kernels: how often, how long, and how near to what the machine can do."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from gpusched.inspection.places import Place
from gpusched.profiling.process_report import Limit
from gpusched.profiling.timeline import Span, Timeline, overlapping


@dataclass(frozen=True)
class KernelRow:
    """All launches of one kernel on one kind of device."""

    name: str
    device: str
    """``"cpu"`` or ``"cuda"``."""
    launches: int
    seconds: float
    """In all, summed over threads."""
    median_seconds: float
    """Of a launch."""
    nbytes: int
    """Read and written, in all."""
    rate: float
    """Bytes per second of a launch; median."""
    limit: float | None
    """Bytes per second that a launch could move at most, beside the others that went on at the same
    time; None where that was not measured."""
    places: tuple[Place, ...]
    """The user's lines behind it."""

    @property
    def share(self) -> float | None:
        """Achieved part of the limit. Chunks that are in a processor's cache may exceed it."""
        return self.rate / self.limit if self.limit else None


def kernel_rows(timeline: Timeline, limits: Mapping[tuple[str, str], Limit]) -> list[KernelRow]:
    """Return the kernels of a timeline, the longest first."""
    rows: defaultdict[tuple[str, str], list[Span]] = defaultdict(list)
    hosts: defaultdict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        if span.kind == "kernel":
            device = _device(span)
            rows[span.name, device].append(span)
            hosts[_host(timeline, span), device].append(span)
    beside = {key: _Beside(spans) for key, spans in hosts.items()}
    found = [
        _row(name, device, spans, _limit(timeline, device, spans, limits, beside))
        for (name, device), spans in rows.items()
    ]
    return sorted(found, key=lambda row: -row.seconds)


def _device(span: Span) -> str:
    return span.detail.removeprefix("on ") or "cpu"


def _host(timeline: Timeline, span: Span) -> str:
    return timeline.processes[timeline.lanes[span.lane].process].host


def _row(name: str, device: str, spans: list[Span], limit: float | None) -> KernelRow:
    return KernelRow(
        name,
        device,
        len(spans),
        sum(span.seconds for span in spans),
        median(span.seconds for span in spans),
        sum(span.nbytes for span in spans),
        median(span.nbytes / max(span.seconds, 1e-9) for span in spans),
        limit,
        tuple(dict.fromkeys(place for span in spans for place in span.places)),
    )


class _Beside:
    """How many launches of one machine go on at a time."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._starts: list[float] = []
        self._sums = [0.0]
        self._counts: list[int] = []
        self._ends: list[float] = []
        for start, end, count in overlapping(spans):
            self._starts.append(start)
            self._ends.append(end)
            self._counts.append(count)
            self._sums.append(self._sums[-1] + count * (end - start))

    def _until(self, at: float) -> float:
        k = bisect_right(self._starts, at) - 1
        if k < 0:
            return 0.0
        return self._sums[k] + self._counts[k] * (min(at, self._ends[k]) - self._starts[k])

    def mean(self, spans: list[Span]) -> float:
        """Return how many go on during these, on average; they themselves count."""
        seconds = sum(span.seconds for span in spans)
        together = sum(self._until(span.end) - self._until(span.start) for span in spans)
        return max(1.0, together / seconds) if seconds else 1.0


def _limit(
    timeline: Timeline,
    device: str,
    spans: list[Span],
    limits: Mapping[tuple[str, str], Limit],
    beside: Mapping[tuple[str, str], _Beside],
) -> float | None:
    """Return what launches could reach, on average over the machines they ran on."""
    by_host: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_host[_host(timeline, span)].append(span)
    total, seconds = 0.0, 0.0
    for host, here in by_host.items():
        known = limits.get((host, device))
        if known is None:
            return None
        spent = sum(span.seconds for span in here)
        total += spent * min(known.one, known.all / beside[host, device].mean(here))
        seconds += spent
    return total / seconds if seconds else None
