"""Results that arrive damaged from another worker, again after asking twice: computed again there.

The sender is asked to forget such a result, as if it were lost, and the scheduler is told that it
was not there. That may happen `MOST` times for one result; then it is an error of its tasks, since
no connection that spoils the same bytes each time becomes better by computing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

from dask.typing import Key
from distributed import Worker
from distributed.worker_state_machine import FreeKeysEvent, GatherDepSuccessEvent

from gpusched.serialization.again import FORGET, MOST
from gpusched.serialization.frames import CorruptFrameError
from gpusched.workers.unreadable import Unreadable

logger = logging.getLogger("distributed.worker")


class Damaged:
    """Has results computed again that a worker gets damaged, and forgets those others get so.

    Parameters
    ----------
    worker
        Gets a handler for the requests of others.

    Notes
    -----
    Belongs to the worker's event loop.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._again: Counter[Key] = Counter()
        worker.handlers[FORGET] = self._forget

    async def without(self, event: GatherDepSuccessEvent) -> GatherDepSuccessEvent:
        """Return what was fetched without what arrived damaged, which is computed again."""
        damaged = [key for key, value in event.data.items() if self._is_damaged(key, value)]
        if not damaged:
            return event
        self._again.update(damaged)
        await self._ask_to_forget(event.worker, damaged)
        # What is missing is reported to the scheduler, which has it made elsewhere or again.
        return GatherDepSuccessEvent(
            worker=event.worker,
            total_nbytes=event.total_nbytes,
            data={key: value for key, value in event.data.items() if key not in damaged},
            stimulus_id=event.stimulus_id,
        )

    def _is_damaged(self, key: Key, value: object) -> bool:
        unreadable = isinstance(value, Unreadable) and isinstance(value.error, CorruptFrameError)
        return unreadable and self._again[key] < MOST

    async def _ask_to_forget(self, sender: str, keys: Collection[Key]) -> None:
        logger.error("arrived damaged from %s, to be computed again: %s", sender, keys)
        try:
            await getattr(self._worker.rpc(sender), FORGET)(keys=list(keys))
        except OSError as error:
            # It is gone, and so are its results.
            logger.info("worker %s does not answer: %s", sender, error)

    def _forget(self, keys: Collection[Key]) -> None:
        """Let go of results, so that whoever asks for them has them computed again."""
        logger.error("arrived damaged elsewhere, to be computed again: %s", keys)
        stimulus = f"damaged-{self._worker.id}"
        self._worker.handle_stimulus(FreeKeysEvent(keys=list(keys), stimulus_id=stimulus))
        for key in keys:
            told = {"op": "release-worker-data", "key": key, "stimulus_id": stimulus}
            self._worker.batched_send(told)
