"""What tasks take, for the workers; graphs that no worker has memory for are refused at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dask.typing import Key
from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from gpusched import config
from gpusched.graph.passes.fitting import (
    DECLARED,
    for_tasks,
    noted,
    noting,
    own_bytes,
    survived,
)
from gpusched.workers.metrics import HEARTBEAT_KEY


class Declarations(SchedulerPlugin):
    """Sends tasks with what they take, where no program of theirs says it.

    Notes
    -----
    Used on the event loop only.
    """

    name = "gpusched-declarations"

    def install(self, scheduler: Scheduler) -> None:
        """Start to note what tasks take, and to check graphs while ``memory.strict`` is set."""
        update = scheduler.stream_handlers["update-graph"]

        async def update_graph(**kwargs: Any) -> None:
            refused = room(scheduler) if config.get("memory.strict") else None
            with noting(most_survived(scheduler), refused):
                await update(**kwargs)

        scheduler.stream_handlers["update-graph"] = update_graph

    def update_graph(self, scheduler: Scheduler, *, tasks: Iterable[Key], **kwargs: Any) -> None:
        """Annotate the tasks of a graph, before the first of them is sent."""
        found = noted()
        for key, declared in found.declared.items() if found is not None else ():
            task = scheduler.tasks.get(key)
            if task is not None:
                task.annotations = {**(task.annotations or {}), DECLARED: tuple(declared)}


def room(scheduler: Scheduler) -> int | None:
    """Return the host memory that the smallest worker has for tasks: any may get any task.

    None if none has a limit, or a worker owns a GPU, where results give way to tasks and the limit
    is one for results.
    """
    workers = _limited(scheduler)
    own = max((own_bytes(each.nanny, each.metrics) for each in workers), default=0)
    least = min((each.memory_limit for each in workers), default=None)
    return None if least is None else for_tasks(least, own)


def most_survived(scheduler: Scheduler) -> float:
    """Return what a task may need alone for one of the workers to survive it, if barely.

    Those that no nanny watches may survive anything.
    """
    found = [
        survived(w.memory_limit, own_bytes(w.nanny, w.metrics)) if w.nanny else math.inf
        for w in _limited(scheduler)
    ]
    unlimited = len(found) < len(scheduler.workers)
    return math.inf if unlimited else max(found, default=math.inf)


def _limited(scheduler: Scheduler) -> list[Any]:
    """Return the workers with a memory limit; none if a worker owns a GPU."""
    workers = scheduler.workers.values()
    devices = (each.metrics.get(HEARTBEAT_KEY, {}).get("device", {}) for each in workers)
    if any(device.get("kind", "cpu") != "cpu" for device in devices):
        return []
    return [worker for worker in workers if worker.memory_limit]
