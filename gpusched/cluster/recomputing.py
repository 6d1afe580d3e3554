"""Results that arrived damaged elsewhere: the scheduler has them computed again."""

from __future__ import annotations

import logging
from collections.abc import Collection

from dask.typing import Key
from distributed import Scheduler

from gpusched.serialization.clients import RECOMPUTE

logger = logging.getLogger(__name__)


def install(scheduler: Scheduler) -> None:
    """Start to answer clients and workers at which results arrive damaged."""

    async def recompute(keys: Collection[Key]) -> list[Key]:
        """Let go of results that their tasks can make again, and return their keys.

        Data that was scattered, and what needs data that is gone, stays where it is.
        """
        made = [key for key in keys if _is_made(scheduler, key)]
        logger.error("arrived damaged, to be computed again: %s", made)
        for key in made:
            # What was lost meanwhile is being computed again already.
            task = scheduler.tasks.get(key)
            for holder in list(task.who_has or ()) if task is not None else ():
                await scheduler.delete_worker_data(holder.address, [key], f"damaged-{key!s}")
        return made

    scheduler.handlers[RECOMPUTE] = recompute


def _is_made(scheduler: Scheduler, key: Key) -> bool:
    task = scheduler.tasks.get(key)
    return task is not None and task.run_spec is not None and not task.has_lost_dependencies
