"""Results that arrive damaged from another worker, again after asking twice: computed again there.

The scheduler is asked to compute such a result again (gpusched/cluster/recomputing.py). That may
happen `MOST` times for one result; then it is an error of its tasks, as it is at once for data that
no task has made.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

from dask.typing import Key
from distributed import Worker
from distributed.worker_state_machine import GatherDepSuccessEvent

from gpusched.serialization.clients import MOST, RECOMPUTE
from gpusched.serialization.frames import CorruptFrameError
from gpusched.workers.unreadable import Unreadable

logger = logging.getLogger(__name__)


class Damaged:
    """Has results computed again that a worker gets damaged.

    Notes
    -----
    Belongs to the worker's event loop.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._again: Counter[Key] = Counter()

    async def without(self, event: GatherDepSuccessEvent) -> GatherDepSuccessEvent:
        """Return what was fetched without what arrived damaged, which is computed again."""
        damaged = [key for key, value in event.data.items() if self._is_damaged(key, value)]
        if not damaged:
            return event
        self._again.update(damaged)
        logger.error("arrived damaged from %s, to be computed again: %s", event.worker, damaged)
        let_go = await self._have_computed_again(damaged)
        # What is missing is reported to the scheduler, which has it made elsewhere or again.
        return GatherDepSuccessEvent(
            worker=event.worker,
            total_nbytes=event.total_nbytes,
            data={key: value for key, value in event.data.items() if key not in let_go},
            stimulus_id=event.stimulus_id,
        )

    def _is_damaged(self, key: Key, value: object) -> bool:
        unreadable = isinstance(value, Unreadable) and isinstance(value.error, CorruptFrameError)
        return unreadable and self._again[key] < MOST

    async def _have_computed_again(self, keys: list[Key]) -> Collection[Key]:
        """Return the keys that the scheduler has computed again."""
        try:
            # A scheduler without gpusched does not know the request, and answers None.
            return await getattr(self._worker.scheduler, RECOMPUTE)(keys=keys) or ()
        except OSError as error:
            logger.error("the scheduler cannot be asked to compute %s again: %s", keys, error)
            return ()
