"""A nanny that reports to the scheduler how its worker's process ended."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable
from typing import Any, Literal

from dask.utils import format_bytes
from distributed import Nanny
from distributed.comm.core import CommClosedError
from distributed.core import Status
from distributed.utils import wait_for

from gpusched.adapters.distributed import terminated_pid
from gpusched.logs import follow
from gpusched.workers import affinity, exits
from gpusched.workers.handshakes import limit_handshakes
from gpusched.workers.restarts import Restarts, had_tasks
from gpusched.workers.worker import DeviceWorker

logger = logging.getLogger(__name__)

_PATIENCE = 10.0
"""Seconds that the scheduler, which may be busy, has to take the message."""


_CLOSING = 5.0
"""Seconds that a worker has to end on a machine that has nothing else to do, as distributed's."""

_SLOWEST = 6.0
"""Times longer that a worker may take to end, at most: half a minute in place of 5 s."""


def _is_news(record: logging.LogRecord) -> bool:
    # Nannies that are closed while they start a worker again, as when a whole process group is
    # told to end, cancel the start; distributed logs that with its traceback.
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


logging.getLogger("distributed.nanny").addFilter(_is_news)


def _slowness() -> float:
    """Return how many times longer than alone a process may take on this machine at present."""
    load = os.getloadavg()[0] / len(affinity.allowed_cpus())
    return min(max(1.0, load), _SLOWEST)


class DeviceNanny(Nanny):
    """Starts a `DeviceWorker`, and starts it again when it dies.

    It gives up if the worker's process ends again and again before it was given a task, as it
    does without enough memory, or with a preload that ends it.

    Attributes
    ----------
    gave_up : str
        Why the worker is not started again; empty unless the nanny has given up.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("worker_class", DeviceWorker)
        super().__init__(*args, **kwargs)
        follow(self)
        self._told_pid = -1
        self._asked_to_end = False
        self._was_asked = False
        self._starting = asyncio.Lock()
        self._restarts = Restarts()
        self._started = time.monotonic()
        self.gave_up = ""

    async def listen(self, *args: Any, **kwargs: Any) -> None:
        """Listen as distributed does, and close connections that do not introduce themselves."""
        await super().listen(*args, **kwargs)
        limit_handshakes(self)

    async def instantiate(self) -> Status:
        """Start the worker's process as distributed does, one start after the other.

        A process that ends while its start is still waited for would otherwise have its successor
        taken for it.
        """
        async with self._starting:
            if self.status in (Status.closing, Status.closed):
                return self.status
            if self.process is not None and self.process.status == Status.stopped:
                # The new process tells its address once it is up, and may end before.
                self.process.worker_address = None
            self._started = time.monotonic()
            return await super().instantiate()

    async def close(  # type: ignore[override]
        self, timeout: float | None = None, reason: str = "nanny-close"
    ) -> Literal["OK"]:
        """Close as distributed does, with time that suits the machine if none is given.

        Where more threads want to run than there are cores, a worker takes longer to end by
        itself, and is given as many times longer before it is killed.
        """
        seconds = _CLOSING * _slowness() if timeout is None else timeout
        return await super().close(timeout=seconds, reason=reason)

    async def kill(self, timeout: float = 5, reason: str = "nanny-kill") -> None:
        """End the worker's process as distributed does; that end is not reported."""
        self._asked_to_end = True
        try:
            await super().kill(timeout=timeout, reason=reason)
        finally:
            self._asked_to_end = False

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self._was_asked = self._asked_to_end
        super()._on_worker_exit_sync(exitcode)

    async def _on_worker_exit(self, exitcode: int) -> None:
        # Before distributed's own part, which lets the scheduler forget the worker.
        if self.status == Status.running and not self._was_asked:
            seconds = time.monotonic() - self._started
            reason = self._describe(exitcode)
            await self._tell(reason)
            if self._restarts.count(exitcode, seconds, await self._had_tasks()):
                await self._give_up(reason)
                return
        await super()._on_worker_exit(exitcode)

    async def _had_tasks(self) -> bool:
        address = self.worker_address
        if not address:
            return False
        try:
            await self._unregister()
            events = await self._ask(self.scheduler.events(topic=address))
        except (OSError, TimeoutError):
            return True
        return had_tasks(events)

    async def _ask(self, request: Awaitable[Any]) -> Any:
        """Return the scheduler's answer; an `OSError` where this nanny has closed meanwhile."""
        try:
            return await wait_for(request, _PATIENCE)
        except RuntimeError as error:
            # As distributed's pool says that it is closed.
            if self.rpc.status == Status.running:
                raise
            raise CommClosedError(str(error)) from error

    async def _give_up(self, reason: str) -> None:
        self.gave_up = (
            f"its process ended {self._restarts.most} times in a row before it was given a task; "
            f"the last one {reason}"
        )
        logger.error("worker %s is not started again: %s", self.name, self.gave_up)
        await self.close(reason="nanny-gave-up")

    def _describe(self, exitcode: int) -> str:
        manager = self.memory_manager
        if exitcode >= 0 or terminated_pid(manager) in (-1, self._told_pid):
            return exits.describe(exitcode)
        self._told_pid = terminated_pid(manager)
        share, limit = manager.memory_terminate_fraction, manager.memory_limit or 0
        return (
            f"was ended by its nanny, because it took more than {share:.0%} of its "
            f"{format_bytes(limit)} of host memory: use smaller chunks, fewer threads, or a larger "
            f"--memory-limit"
        )

    async def _tell(self, reason: str) -> None:
        worker = self.worker_address or ""
        message = {"worker": worker, "nanny": self.address, "reason": f"its process {reason}"}
        try:
            await self._ask(self.scheduler.log_event(topic=exits.EVENTS, msg=message))
        except (OSError, TimeoutError) as error:
            logger.warning(
                "the scheduler could not be reached to report that worker %s %s: %s",
                self.name,
                reason,
                error,
            )
