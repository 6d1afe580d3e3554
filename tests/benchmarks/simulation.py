"""A cluster of GPUs behind one scheduler, as discrete events: who waits for whom, and how long.

The scheduler is one server: it spends the same time on each task, one after the other. A worker
has one GPU, and a task or two that wait for it, so that it need not ask while it computes
(distributed's ``worker-saturation``). A task takes its worker's own time, then its kernels'.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

AHEAD = 2
"""Tasks that a worker of one thread is given at once: distributed rounds 1.1 up."""


class Events:
    """What is to happen, in the order of time.

    Examples
    --------
    >>> from tests.benchmarks.simulation import Events
    >>> events, seen = Events(), []
    >>> events.after(2, seen.append, "later")
    >>> events.after(1, seen.append, "sooner")
    >>> events.run(), seen
    (2.0, ['sooner', 'later'])
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, action: Callable[..., Any], *args: Any) -> None:
        """Let something happen in so many seconds; what happens at once keeps its order."""
        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), action, args))

    def run(self) -> float:
        """Let everything happen; return the time of the last event."""
        while self._heap:
            self.now, _, action, args = heapq.heappop(self._heap)
            action(*args)
        return self.now


class Server:
    """Does one thing after the other, in the order of asking; `busy` counts its seconds."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._free = 0.0
        self.busy = 0.0
        self.waited = 0.0

    def serve(self, seconds: float, then: Callable[..., Any], *args: Any) -> None:
        """Be busy for so long as soon as what was asked before is done, then call `then`."""
        now = self._events.now
        start = max(self._free, now)
        self._free = start + seconds
        self.busy += seconds
        self.waited += start - now
        self._events.after(self._free - now, then, *args)


@dataclass(frozen=True)
class Costs:
    """What everything costs."""

    scheduler: float
    """Seconds of the scheduler for each task."""
    worker: float
    """Seconds of a worker for each task, besides its kernels."""
    launch: float
    """Seconds for each kernel, besides moving its bytes."""
    latency: float
    """Seconds of a message between scheduler and worker."""
    bandwidth: float
    """Bytes a second of a GPU's memory."""


@dataclass(frozen=True)
class Program:
    """What is done with each chunk."""

    name: str
    kernels: float
    """Launches for each chunk, on average."""
    moved: float
    """Bytes that these read and write, over those of the chunk."""
    tasks: float = 1.0
    """Tasks for each chunk: more than one where partial results are joined."""

    def seconds(self, chunk: int, costs: Costs) -> float:
        """Return how long a GPU computes for a chunk."""
        return self.moved * chunk / costs.bandwidth + self.kernels * costs.launch


@dataclass(frozen=True)
class Outcome:
    """How a run went."""

    seconds: float
    """Until the last result."""
    computing: float
    """Part of the time that GPUs compute, on average."""
    scheduling: float
    """Part of the time that the scheduler is busy."""


def simulate(program: Program, costs: Costs, gpus: int, chunks: int, chunk: int) -> Outcome:
    """Return how a program goes.

    Parameters
    ----------
    program, costs
        What is done, and what that costs.
    gpus
        Workers.
    chunks, chunk
        How many, and the bytes of each.

    Examples
    --------
    >>> from tests.benchmarks.simulation import Costs, Program, simulate
    >>> costs = Costs(scheduler=1e-3, worker=0, launch=0, latency=0, bandwidth=1e9)
    >>> found = simulate(Program("copy", 1, 2), costs, gpus=100, chunks=1000, chunk=1_000_000)
    >>> round(found.seconds, 3), round(found.scheduling, 2), round(found.computing, 2)
    (1.002, 1.0, 0.02)
    """
    events = Events()
    scheduler = Server(events)
    cost = costs.scheduler * program.tasks
    length = costs.worker * program.tasks + program.seconds(chunk, costs)
    waiting = [0] * gpus
    running = [False] * gpus
    left = chunks

    def assign(worker: int) -> None:
        nonlocal left
        if left:
            left -= 1
            scheduler.serve(cost, events.after, costs.latency, arrive, worker)

    def arrive(worker: int) -> None:
        waiting[worker] += 1
        if not running[worker]:
            start(worker)

    def start(worker: int) -> None:
        waiting[worker] -= 1
        running[worker] = True
        events.after(length, finish, worker)

    def finish(worker: int) -> None:
        running[worker] = False
        events.after(costs.latency, assign, worker)
        if waiting[worker]:
            start(worker)

    for _ in range(AHEAD):
        for worker in range(gpus):
            assign(worker)
    seconds = events.run()
    computing = chunks * program.seconds(chunk, costs) / (gpus * seconds)
    return Outcome(seconds, computing, scheduler.busy / seconds)


def most(program: Program, costs: Costs, chunk: int) -> float:
    """Return how many GPUs one scheduler keeps busy: more of them only wait for it."""
    length = costs.worker * program.tasks + program.seconds(chunk, costs)
    return length / (costs.scheduler * program.tasks)


def rate_bound(program: Program, costs: Costs, gpus: int, chunk: int) -> float:
    """Return the chunks a second that no run can exceed.

    The least of what the scheduler, the GPUs, and the tasks under way allow (asymptotic bounds of a
    closed network: Denning and Buzen, ACM Computing Surveys 10(3), 1978).
    """
    cost = costs.scheduler * program.tasks
    length = costs.worker * program.tasks + program.seconds(chunk, costs)
    round_trip = cost + 2 * costs.latency + length
    bounds = [gpus * AHEAD / round_trip]
    bounds += [1 / cost] if cost else []
    bounds += [gpus / length] if length else []
    return min(bounds, default=math.inf)
