"""Why workers ended, kept on the scheduler until somebody asks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import lru_cache
from typing import Any

from dask.typing import Key
from dask.utils import format_bytes
from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import KilledWorker, WorkerState

from gpusched.workers import exits

_REMEMBERED = 1000
"""Workers whose end is remembered."""
_PATIENCE = 2.0
"""Seconds to wait for a nanny's word on how its worker's process ended."""
_reasons: OrderedDict[str, str] = OrderedDict()
"""By worker's address. Of the whole process, because distributed raises `KilledWorker` in a place
that knows no more than that."""
_samples: OrderedDict[str, str] = OrderedDict()
"""The last memory figures of workers that ended, in words, by address."""


class Obituaries(SchedulerPlugin):
    """Takes what workers and nannies tell of an end, and has it ready when a task is given up.

    Parameters
    ----------
    scheduler
        Whose workers are followed.

    Notes
    -----
    Used on the event loop only.
    """

    name = "gpusched-obituaries"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[str, asyncio.Event] = {}

    def install(self) -> None:
        """Start to follow the scheduler's workers."""
        self._scheduler.add_plugin(self)
        _explain_killed_workers()
        removing = self._scheduler.remove_worker

        async def remove_worker(address: str, **kwargs: Any) -> Any:
            worker = self._scheduler.workers.get(address)
            if worker is not None and not kwargs.get("expected"):
                _remember(_samples, address, _sample(worker))
                await self._hear_of(worker)
            return await removing(address, **kwargs)

        self._scheduler.remove_worker = remove_worker  # type: ignore[method-assign]

    def log_event(self, topic: str, msg: Any) -> None:
        """Note what a worker or a nanny tells."""
        if topic != exits.EVENTS:
            return
        # A worker's own word comes before its nanny's, and tells more than an exit code.
        _remember(_reasons, msg["worker"], msg["reason"])
        if msg["worker"] in self._waiting:
            self._waiting[msg["worker"]].set()

    async def _hear_of(self, worker: WorkerState) -> None:
        """Wait for the reason of an end, if a task is about to be given up because of it.

        The closed connection is noticed before the nanny has told how the process ended.
        """
        if worker.address in _reasons or not worker.nanny:
            return
        allowed = self._scheduler.allowed_failures
        if all(task.suspicious < allowed for task in worker.processing):
            return
        told = self._waiting.setdefault(worker.address, asyncio.Event())
        try:
            async with asyncio.timeout(_PATIENCE):
                await told.wait()
        except TimeoutError:
            _remember(_reasons, worker.address, "nobody told how its process ended")
        finally:
            self._waiting.pop(worker.address, None)


@lru_cache(maxsize=1)
def _explain_killed_workers() -> None:
    """Let distributed's error carry a note on how the last worker ended, from now on.

    A note, rather than an error of our own: it is pickled with the error, and a client without
    gpusched reads it too.
    """
    initialize = KilledWorker.__init__

    def explained(
        error: KilledWorker, task: Key, last_worker: WorkerState, allowed_failures: int
    ) -> None:
        initialize(error, task, last_worker, allowed_failures)
        address = last_worker.address
        if address in _samples:
            reason = _reasons.get(address, "nobody told how its process ended")
            error.add_note(
                f"gpusched: {address}: {reason}; memory at its last heartbeat: {_samples[address]}"
            )

    KilledWorker.__init__ = explained  # type: ignore[method-assign, assignment]


def _remember(texts: OrderedDict[str, str], worker: str, text: str) -> None:
    texts.setdefault(worker, text)
    while len(texts) > _REMEMBERED:
        texts.popitem(last=False)


def _sample(worker: WorkerState) -> str:
    """Return the last memory figures that a worker sent, in words."""
    device = worker.metrics.get("gpusched", {}).get("device", {})
    told = [f"host {format_bytes(worker.metrics.get('memory', 0))}"]
    if "memory_used" in device and device.get("kind") != "cpu":
        limit = device.get("memory_limit")
        bounded = f" of {format_bytes(limit)}" if limit else ""
        name = device.get("name", "device")
        told.append(f"{name} {format_bytes(device['memory_used'])}{bounded}")
    return ", ".join(told)
