"""What is known of each kernel of a cluster: launches, times, and how near to the limit."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

KEPT = 1000
"""Kernels that are remembered; the shortest go first."""
_RECENT = 5.0
"""Seconds over which launches are counted that go on at a time."""

Name = tuple[str, str]
"""A kernel's name, and ``"cpu"`` or ``"cuda"``."""
Place = tuple[str, str]
"""A host, and ``"cpu"`` or ``"cuda"``."""
Limit = tuple[float, float]
"""Bytes per second that one launch can move by itself, and all that go on at a time together."""


@dataclass
class Timed:
    """Launches of one kernel on the machines of a cluster, timed while somebody looked."""

    launches: int = 0
    seconds: float = 0.0
    """Summed over threads."""
    nbytes: int = 0
    """Read and written."""
    beside: dict[str, list[float]] = field(default_factory=dict)
    """By host: the seconds there, and the same times the launches that went on at a time."""


@dataclass(frozen=True)
class Row:
    """One kernel, as a page shows it."""

    name: str
    device: str
    launches: int
    """All that workers have counted."""
    timed: Timed
    limit: float | None
    """Bytes per second that a launch could move; None where that is not known."""

    @property
    def rate(self) -> float:
        """Bytes per second of a launch, on average; 0 where none was timed."""
        return self.timed.nbytes / self.timed.seconds if self.timed.seconds else 0.0

    @property
    def mean(self) -> float:
        """Seconds of a launch, on average; 0 where none was timed."""
        return self.timed.seconds / self.timed.launches if self.timed.launches else 0.0

    @property
    def share(self) -> float | None:
        """Part of the limit that it reaches. Chunks that are in a cache may exceed it."""
        return self.rate / self.limit if self.limit and self.timed.seconds else None


class Launches:
    """The kernels of a cluster.

    Notes
    -----
    Used on the scheduler's event loop only.

    Examples
    --------
    >>> from gpusched.dashboard.launches import Launches
    >>> launches = Launches()
    >>> launches.limits["host", "cpu"] = 8e9, 16e9
    >>> launches.add(("host", 1), [("add", "cpu", 2, 0.5, 10**9)], {"cpu": 0.5})
    >>> [(row.name, row.rate, row.share) for row in launches.rows(())]
    [('add', 2000000000.0, 0.25)]
    """

    def __init__(self) -> None:
        self.limits: dict[Place, Limit] = {}
        self._timed: dict[Name, Timed] = {}
        self._recent: dict[Place, deque[tuple[float, int, float, float]]] = defaultdict(deque)

    def add(
        self,
        process: tuple[str, int],
        kernels: Iterable[tuple[str, str, int, float, int]],
        busy: Mapping[str, float],
    ) -> None:
        """Add what a process reports.

        Parameters
        ----------
        process
            Its host and its identifier.
        kernels
            Name, device, launches, seconds and bytes of each.
        busy
            Seconds in which at least one kernel ran, by device.
        """
        host, pid = process
        kernels = list(kernels)
        for device, seconds in busy.items():
            spent = sum(kernel[3] for kernel in kernels if kernel[1] == device)
            self._recent[host, device].append((time.monotonic(), pid, spent, seconds))
        for name, device, launches, seconds, nbytes in kernels:
            timed = self._timed.setdefault((name, device), Timed())
            timed.launches += launches
            timed.seconds += seconds
            timed.nbytes += nbytes
            beside = timed.beside.setdefault(host, [0.0, 0.0])
            beside[0] += seconds
            beside[1] += seconds * self._at_a_time((host, device))
        while len(self._timed) > KEPT:
            del self._timed[min(self._timed, key=lambda name: self._timed[name].seconds)]

    def places(self) -> set[Place]:
        """Return the machines and devices that kernels ran on."""
        return {(host, name[1]) for name, timed in self._timed.items() for host in timed.beside}

    def rows(self, counters: Iterable[Mapping[str, int]]) -> list[Row]:
        """Return all kernels, those first that took the longest.

        Parameters
        ----------
        counters
            Of each process: launches by name, since it began.
        """
        counted: Counter[str] = Counter()
        for each in counters:
            counted.update(each)
        rows = [
            Row(name, device, max(counted.pop(name, 0), timed.launches), timed,
                self._limit(device, timed))
            for (name, device), timed in self._timed.items()
        ]  # fmt: skip
        rows += [Row(name, "", launches, Timed(), None) for name, launches in counted.items()]
        return sorted(rows, key=lambda row: (-row.timed.seconds, -row.launches, row.name))[:KEPT]

    def _at_a_time(self, place: Place) -> float:
        """Return how many launches of one machine go on at a time, as far as processes report.

        Exact where the busiest process is busy whenever another one is.
        """
        recent = self._recent[place]
        while recent[0][0] < time.monotonic() - _RECENT:
            recent.popleft()
        busy: defaultdict[int, float] = defaultdict(float)
        for _, pid, _, seconds in recent:
            busy[pid] += seconds
        longest = max(busy.values())
        return max(1.0, sum(entry[2] for entry in recent) / longest) if longest else 1.0

    def _limit(self, device: str, timed: Timed) -> float | None:
        """Return what launches could reach, on average over the machines they ran on."""
        total = 0.0
        for host, (seconds, together) in timed.beside.items():
            known = self.limits.get((host, device))
            if known is None or not seconds:
                return None
            one, every = known
            total += seconds * min(one, every * seconds / together)
        return total / timed.seconds if timed.seconds else None
