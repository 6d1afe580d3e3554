"""What a profile found: a timeline, a table of kernels, and where the time went."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpusched.files import write_or_remove
from gpusched.profiling.clocks import Offset
from gpusched.profiling.kernel_table import KernelRow, kernel_rows
from gpusched.profiling.lines import Lines
from gpusched.profiling.memory_bandwidth import limit_of
from gpusched.profiling.process_report import Gathered, Report
from gpusched.profiling.timeline import KINDS, Span, Timeline, build


@dataclass(frozen=True)
class Contention:
    """Waits for one thread policy."""

    policy: str
    waits: int
    seconds: float
    """Summed over threads."""
    longest: float
    """Seconds."""
    holders: tuple[str, ...]
    """Who had it when waits began, the most frequent first."""


class Profile:
    """What a program did: printed as text, shown as a timeline by Jupyter, or taken as data.

    It is filled when the block of `gpusched.profile` ends.

    Notes
    -----
    Does not change any more then, so that threads may share it.
    """

    _timeline: Timeline | None = None

    def _fill(
        self,
        reports: list[tuple[Report, Offset]],
        origins: Mapping[Any, Any],
        began: float,
        ended: float,
        gathered: Gathered,
    ) -> None:
        timeline = build(reports, began, ended, Lines(origins))
        self._seconds = ended - began
        self._totals: defaultdict[str, float] = defaultdict(float)
        for report, _ in reports:
            for name, seconds in report.totals.items():
                self._totals[name] += seconds
        self._limits = {(host, "cpu"): limit for host, limit in gathered.limits.items()}
        self._limits |= {(host, "cuda"): limit for host, limit in gathered.gpu_limits.items()}
        self._host = reports[0][0].process[0]
        self._changes = [(at - began, what) for at, what in gathered.changes]
        self._notes = [*gathered.notes, *_dropped(timeline)]
        self._timeline = timeline

    @property
    def timeline(self) -> Timeline:
        """Processes, lanes and spans.

        Raises
        ------
        RuntimeError
            If the block of the profile has not ended.
        """
        if self._timeline is None:
            raise RuntimeError("this profile still runs: look at it after its block has ended")
        return self._timeline

    @property
    def seconds(self) -> float:
        """How long the block took."""
        self._check()
        return self._seconds

    @property
    def notes(self) -> list[str]:
        """What is missing, and why; empty where nothing is."""
        self._check()
        return list(self._notes)

    @property
    def changes(self) -> list[tuple[float, str]]:
        """Workers that joined or left: seconds since the beginning, and what happened."""
        self._check()
        return list(self._changes)

    @property
    def distributed(self) -> dict[str, float]:
        """Seconds that distributed counted by activity, such as ``"gather-dep deserialize"``."""
        self._check()
        return dict(self._totals)

    @cached_property
    def kernels(self) -> list[KernelRow]:
        """The table of kernels, the longest first."""
        limits = dict(self._limits) if self._check() else {}
        devices = {s.detail.removeprefix("on ") or "cpu" for s in self._of("kernel")}
        for device in devices:
            limit = limits.get((self._host, device)) or limit_of(device)
            if limit is not None:
                limits[self._host, device] = limit
        return kernel_rows(self.timeline, limits)

    @cached_property
    def spent(self) -> dict[str, float]:
        """Seconds by kind, summed over threads; what is inside something else counts once."""
        found = dict.fromkeys(KINDS, 0.0)
        for span in self.timeline.spans:
            found[span.kind] += max(0.0, span.seconds - span.inside)
        return {kind: seconds for kind, seconds in found.items() if seconds}

    @cached_property
    def outside_kernels(self) -> dict[str, float]:
        """Seconds that tasks took for other things than kernels, by their names; longest first.

        Summed over threads. What is noted by itself, such as a wait, is left out too.
        """
        found: defaultdict[str, float] = defaultdict(float)
        for span in self._of("task"):
            found[span.name] += max(0.0, span.seconds - span.inside)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @cached_property
    def threads(self) -> int:
        """Threads that ran tasks."""
        return len({span.lane for span in self._of("task")})

    @cached_property
    def contention(self) -> list[Contention]:
        """Waits for thread policies, the longest first."""
        waits: defaultdict[str, list[Span]] = defaultdict(list)
        for span in self._of("wait"):
            waits[span.name].append(span)
        found = [_contention(policy, spans) for policy, spans in waits.items()]
        return sorted(found, key=lambda each: -each.seconds)

    def _of(self, kind: str) -> list[Span]:
        return [span for span in self.timeline.spans if span.kind == kind]

    def _check(self) -> bool:
        return bool(self.timeline)

    def text(self) -> str:
        """Return where the time went, the kernels, and what is missing."""
        from gpusched.profiling.text import text

        return text(self)

    def html(self, path: str | Path | None = None) -> str:
        """Return one page that shows everything and needs no other file nor the network.

        Parameters
        ----------
        path : str or Path, optional
            Where to write it, too.
        """
        from gpusched.profiling.html import page

        found = page(self)
        if path is not None:
            write_or_remove(path, found)
        return found

    def write(self, path: str) -> None:
        """Write the trace to a file whose name ends with ``.json``, the page to any other.

        Parameters
        ----------
        path : str
            The file.
        """
        if path.endswith(".json"):
            self.save_trace(path)
        else:
            self.html(path)

    def save_trace(self, path: str | Path) -> None:
        """Write the timeline as Chrome and https://ui.perfetto.dev read it.

        Parameters
        ----------
        path : str or Path
            A file, whose name usually ends with ``.json``.
        """
        from gpusched.profiling.chrome_trace import trace

        write_or_remove(path, json.dumps(trace(self)))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        timeline = self.timeline
        rows = [{**asdict(row), "share": row.share} for row in self.kernels]
        found = {
            "seconds": self.seconds,
            "threads": self.threads,
            "spent": self.spent,
            "outside_kernels": self.outside_kernels,
            "kernels": rows,
            "contention": [asdict(each) for each in self.contention],
            "distributed": self.distributed,
            "queued": {"tasks": len(timeline.queued), "seconds": sum(timeline.queued)},
            "changes": [list(change) for change in self.changes],
            "notes": self.notes,
            "processes": [asdict(process) for process in timeline.processes],
            "lanes": [{"process": lane.process, "name": lane.name} for lane in timeline.lanes],
            "spans": [asdict(span) for span in timeline.spans],
        }
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return "<Profile that still runs>" if self._timeline is None else self.text()

    def _repr_html_(self) -> str | None:
        if self._timeline is None:
            return None
        from gpusched.profiling.html import framed

        return framed(self)


def _dropped(timeline: Timeline) -> list[str]:
    return [
        f"{process.name} had no room for {process.dropped:,} events: raise "
        "gpusched.profiling.maximum-events"
        for process in timeline.processes
        if process.dropped
    ]


def _contention(policy: str, spans: list[Span]) -> Contention:
    holders: defaultdict[str, int] = defaultdict(int)
    for span in spans:
        if span.detail:
            holders[span.detail.removeprefix("held by ")] += 1
    seconds = [span.seconds for span in spans]
    order = sorted(holders, key=lambda holder: -holders[holder])
    return Contention(policy, len(spans), sum(seconds), max(seconds), tuple(order))
