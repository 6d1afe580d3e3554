"""Watches a worker's memory: spills before it runs out, and pauses where the disk is full."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from typing import TYPE_CHECKING

from dask.utils import format_bytes
from distributed.core import Status
from distributed.protocol import pickle
from tornado.ioloop import PeriodicCallback

from gpusched.adapters.distributed import pause_or_resume
from gpusched.workers.pool.host import HostPool

if TYPE_CHECKING:
    from gpusched.workers.worker import DeviceWorker

logger = logging.getLogger(__name__)

_STEP = 32 << 20
"""Bytes moved between two looks at the process's memory."""


_PAUSED = "is paused: it cannot spill to"
_WAITING = "has tasks wait that need more memory: it cannot spill to"


class MemoryMonitor:
    """Does what distributed's own monitor does, by the same settings, off the event loop.

    Notes
    -----
    Used on the event loop only.
    """

    def __init__(self, worker: DeviceWorker) -> None:
        self._worker = worker
        self._manager = worker.memory_manager
        self._stopped = False
        self._told = ""
        """What was said of a full disk: what becomes of tasks meanwhile; empty while it is not."""
        self._pauses = False
        """Whether the worker is paused because of it."""

    def install(self) -> None:
        """Take the place of distributed's monitor among the worker's periodic callbacks."""
        interval = self._manager.memory_monitor_interval
        if interval:
            callbacks = self._worker.periodic_callbacks
            callbacks["memory_monitor"] = PeriodicCallback(self.check, interval * 1000)

    async def check(self) -> None:
        """Look once, and act; returns when what had to be spilled is."""
        if self._stopped or self._worker.data.closed:
            return
        # tornado starts no second look while one is going on.
        memory = self._worker.monitor.get_process_memory()
        if self._worker.data.disk_error is not None and await self._is_stopped_by_disk():
            return
        if self._told and self._worker.data.disk_error is None:
            # Also where a task that was short of memory has found that before this did.
            self._told = ""
            self._go_on("spilling works again")
        if self._manager.memory_limit:
            memory = self._without_free_buffers(memory, self._manager.memory_limit)
            pause_or_resume(self._manager, self._worker, memory)
            await self._spill(memory)

    def _without_free_buffers(self, memory: int, limit: int) -> int:
        """Give free chunk buffers back before anything waits or is spilled on their account."""
        manager = self._manager
        fractions = [manager.memory_spill_fraction, manager.memory_pause_fraction]
        threshold = min((f for f in fractions if f is not False), default=math.inf)
        if memory <= threshold * limit or not HostPool().free_unused():
            return memory
        return self._worker.monitor.get_process_memory()

    async def _spill(self, memory: int) -> None:
        """Spill from the threshold down to the target, and go on meanwhile as soon as one can."""
        manager, data = self._manager, self._worker.data
        threshold, limit = manager.memory_spill_fraction, manager.memory_limit
        if threshold is False or not limit or memory <= threshold * limit:
            return
        target = limit * (manager.memory_target_fraction or threshold)
        self._worker.device.free_unused()
        while memory > target and not data.closed:
            wanted = min(memory - target, _STEP)
            if not await asyncio.wrap_future(data.make_room(host_bytes=wanted)):
                logger.debug("nothing to spill at %s of memory", format_bytes(memory))
                break
            memory = self._worker.monitor.get_process_memory()
            pause_or_resume(manager, self._worker, memory)

    async def _is_stopped_by_disk(self) -> bool:
        """Try to write a file; return whether the worker is paused until that works again.

        It is as long as its results exceed their limit, or all of its tasks wait for memory: others
        may have these. Otherwise tasks that need little go on, and others wait to be admitted.
        """
        worker, needed = self._worker, self._is_disk_needed()
        if needed and worker.status == Status.running:
            worker.status = Status.paused
        # Also where its memory has paused it before: until the disk is free it stays so.
        self._pauses |= needed and worker.status == Status.paused
        if worker.status in (Status.running, Status.paused):
            self._say_full(_PAUSED if needed else self._told or _WAITING)
        # A byte more than the limit asks for, so that a file is written in any case.
        await asyncio.wrap_future(worker.data.make_room(host_bytes=1))
        if worker.data.disk_error is None:
            return False
        if self._is_disk_needed():
            return True
        self._go_on("results have made room")
        return False

    def _is_disk_needed(self) -> bool:
        """Return whether results exceed their limit, or nothing runs here for want of memory."""
        data, admission = self._worker.data, self._worker.admission
        exceeds: bool = data.held_on_host() > data.host_limit
        return exceeds or (admission is not None and admission.is_stuck)

    def _go_on(self, why: str) -> None:
        if self._pauses and self._worker.status == Status.paused:
            logger.warning("%s; resuming", why)
            self._worker.status = Status.running
        self._pauses = False

    def _say_full(self, becomes: str) -> None:
        """Write to the log, and through the scheduler every client, as a warning; once each."""
        if becomes == self._told:
            return
        self._told, data = becomes, self._worker.data
        message = (
            f"worker {self._worker.name} on {self._worker.address} {becomes} "
            f"{data.files.directory} ({data.disk_error}; {_free(str(data.files.directory))}) and "
            f"holds {format_bytes(data.held_on_host())} of results in memory. Free some space "
            f"there, or choose another disk by --local-directory of gpusched worker, or "
            f"dask's setting temporary-directory"
        )
        logger.error(message)
        self._worker.log_event(["gpusched-disk", "warn"], {"message": pickle.dumps(message)})


def _free(directory: str) -> str:
    try:
        return f"{format_bytes(shutil.disk_usage(directory).free)} free"
    except OSError as error:
        return str(error)
