"""What fusion has made of a cluster's tasks: counted on the scheduler, and reported by workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dask.utils import key_split

from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.programs.program import Program
from gpusched.graph.running.batch import Batch
from gpusched.newest import Newest

KEPT = 1000
"""Names of tasks, and processes, that are remembered."""

ON_HOST = "on the host: "
"""How reasons begin for which a GPU's worker computes chunks there."""

Process = tuple[str, int]
"""A host, and a process on it."""


@dataclass
class Fused:
    """Tasks of one name."""

    calls: int = 0
    """Calls of array functions that they make, each a task where nothing is fused or batched."""
    tasks: int = 0


@dataclass(frozen=True)
class Counted:
    """What processes have counted since they began."""

    tasks: int = 0
    """Chunk tasks that held at least one function gpusched knows."""
    fused_tasks: int = 0
    """Of them, those that launched at least one kernel."""
    launches: int = 0
    device_tasks: int = 0
    """Chunk tasks of NumPy programs that ran on a worker's GPU."""
    host_tasks: int = 0
    """Those that ran on the host of a worker with a GPU."""


@dataclass(frozen=True)
class Awaited:
    """A kernel that is being compiled, or waits for its turn."""

    name: str
    processes: int = 0
    """Those that have asked for it."""
    seconds: float = 0.0
    """What their tasks have taken without it."""
    urgent: bool = False
    """Whether it is compiled beside tasks, and not only when the machine has nothing else to do."""


class Fusion:
    """The tasks that a scheduler was sent, and what its workers' processes count.

    Notes
    -----
    Used on the scheduler's event loop only.

    Examples
    --------
    >>> from gpusched.dashboard.fusion_counts import Fusion
    >>> fusion = Fusion()
    >>> fusion.tell(("host", 1), {"tasks": 3, "fused_tasks": 2, "launches": 2,
    ...                           "kernels": [["add", 2]],
    ...                           "breaks": [["sort", "NO_KERNEL", "no kernel for sort", 1]]})
    >>> fusion.counted(), fusion.breaks()
    (Counted(tasks=3, fused_tasks=2, launches=2, device_tasks=0, host_tasks=0), \
[('sort', 'no kernel for sort', 1)])
    """

    def __init__(self) -> None:
        self.by_name: Newest[str, Fused] = Newest(KEPT)
        self.others = 0
        """Tasks without array functions."""
        self.launches: Newest[Process, dict[str, int]] = Newest(KEPT)
        """By process, and by the kernel's name."""
        self._told: Newest[Process, dict[str, Any]] = Newest(KEPT)

    def add(self, specs: Iterable[tuple[Any, Any]]) -> None:
        """Count the tasks of a graph."""
        for key, spec in specs:
            calls = _calls(getattr(spec, "func", None))
            if not calls:
                self.others += 1
                continue
            found = self.by_name.setdefault(key_split(key), Fused())
            found.calls += calls
            found.tasks += 1

    def tell(self, process: Process, counters: Mapping[str, Any]) -> None:
        """Note what a process has counted since it began."""
        self._told[process] = dict(counters)
        self.launches[process] = dict(counters["kernels"])

    def end(self, process: Process) -> None:
        """Note that a process waits for no kernels any more; what it has counted stays."""
        if process in self._told:
            self._told[process].pop("compiling", None)

    def counted(self) -> Counted:
        """Return the sums over all processes, those that have ended too."""
        names = [each.name for each in fields(Counted)]
        return Counted(*(sum(told.get(k, 0) for told in self._told.values()) for k in names))

    def compiling(self) -> list[Awaited]:
        """Return the kernels that processes wait for, those first that most time is spent for."""
        found: dict[str, Awaited] = {}
        for told in self._told.values():
            for name, seconds, urgent in told.get("compiling", ()):
                known = found.get(name, Awaited(name))
                found[name] = Awaited(name, known.processes + 1, known.seconds + seconds,
                                      known.urgent or urgent)  # fmt: skip
        return sorted(found.values(), key=lambda each: (-each.urgent, -each.seconds))

    def unfused(self) -> int:
        """Return how many tasks have run without their kernels."""
        return sum(told.get("unfused_tasks", 0) for told in self._told.values())

    def breaks(self) -> list[tuple[str, Reason, int]]:
        """Return (operation, reason, times) of the graph breaks, the most frequent first.

        That a worker with a GPU called it on the host is such a reason, too.
        """
        found: Counter[tuple[str, Reason]] = Counter()
        for told in self._told.values():
            for operation, code, text, times in told["breaks"]:
                found[operation, GraphBreak[code](text)] += times
            for operation, code, text, times in told.get("host_reasons", ()):
                found[operation, GraphBreak[code](f"{ON_HOST}{text}")] += times
        return [(*names, times) for names, times in found.most_common()]


def _calls(function: Any) -> int:
    """Return how many tasks there would be instead of one that calls this function.

    Those of its programs' calls, and of the other tasks in a batch; 0 where it is neither.
    """
    if type(function) is Batch:
        return sum(_calls(step.function) or 1 for step in function.steps)
    program = getattr(function, "program", function)
    return len(program.steps) if type(program) is Program else 0
