"""A nanny that tells the scheduler how its worker's process ended."""

from __future__ import annotations

import logging
from typing import Any

from distributed import Nanny
from distributed.core import Status
from distributed.utils import wait_for

from gpusched.workers import exits
from gpusched.workers.worker import DeviceWorker

logger = logging.getLogger("distributed.nanny")

_PATIENCE = 2.0
"""Seconds that the scheduler has to take the message."""


class DeviceNanny(Nanny):
    """Starts a `DeviceWorker`, and starts it again when it dies.

    Parameters
    ----------
    *args, **kwargs
        Those of `distributed.Nanny` and of `gpusched.workers.worker.DeviceWorker`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("worker_class", DeviceWorker)
        super().__init__(*args, **kwargs)

    async def _on_worker_exit(self, exitcode: int) -> None:
        # Before distributed's own part, which lets the scheduler forget the worker.
        closing = self.status in (Status.closing, Status.closing_gracefully, Status.closed)
        if exitcode and self.worker_address is not None and not closing:
            await self._tell(self.worker_address, exits.describe(exitcode))
        await super()._on_worker_exit(exitcode)

    async def _tell(self, worker: str, reason: str) -> None:
        message = {"worker": worker, "reason": f"its process {reason}"}
        try:
            await wait_for(
                self.scheduler.log_event(topic=exits.EVENTS, msg=message), timeout=_PATIENCE
            )
        except (OSError, TimeoutError) as error:
            logger.warning(
                "the scheduler was not told that worker %s %s: %s", worker, reason, error
            )
