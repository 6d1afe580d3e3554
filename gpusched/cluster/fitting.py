"""Graphs with tasks that no worker has memory for: the scheduler refuses them before they start."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler

from gpusched import config
from gpusched.graph.fitting import refusing
from gpusched.workers.metrics import HEARTBEAT_KEY


def install(scheduler: Scheduler) -> None:
    """Start to check the graphs that a scheduler is sent, while ``memory.strict`` is set."""
    update = scheduler.stream_handlers["update-graph"]

    async def update_graph(**kwargs: Any) -> None:
        with refusing(room(scheduler) if config.get("memory.strict") else None):
            await update(**kwargs)

    scheduler.stream_handlers["update-graph"] = update_graph


def room(scheduler: Scheduler) -> int | None:
    """Return the host memory of the smallest worker, since any worker may get any task.

    None if none has a limit, or a worker owns a GPU, where results give way to tasks and the limit
    is one for results.
    """
    workers = scheduler.workers.values()
    if any(_owns_gpu(worker) for worker in workers):
        return None
    return min((worker.memory_limit for worker in workers if worker.memory_limit), default=None)


def _owns_gpu(worker: Any) -> bool:
    told = worker.metrics.get(HEARTBEAT_KEY, {})
    return bool(told.get("device", {}).get("kind", "cpu") != "cpu")
