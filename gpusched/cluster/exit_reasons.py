"""Why workers ended, kept on the scheduler until somebody asks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import lru_cache
from typing import Any

from dask.typing import Key
from dask.utils import format_bytes
from distributed import Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time
from distributed.scheduler import KilledWorker, WorkerState

from gpusched.newest import Newest
from gpusched.workers import exits

_REMEMBERED = 1000
"""Workers whose end is remembered."""
_PATIENCE = 10.0
"""Seconds to wait for a nanny's word on how its worker's process ended: its machine may be busy."""
_reasons: Newest[str, str] = Newest(_REMEMBERED)
"""By worker's address. Of the whole process, because distributed raises `KilledWorker` in a place
that knows no more than that."""
_samples: Newest[str, str] = Newest(_REMEMBERED)
"""The last memory figures of workers that ended, in words, by address."""


class ExitReasons(SchedulerPlugin):
    """Takes what workers and nannies report of an end, and has it ready when a task is given up.

    Notes
    -----
    Used on the event loop only.
    """

    name = "gpusched-exit-reasons"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[str, asyncio.Event] = {}
        self._removing = scheduler.remove_worker

    def install(self) -> None:
        """Start to follow the scheduler's workers."""
        self._scheduler.add_plugin(self)
        _explain_killed_workers()
        self._scheduler.remove_worker = self._remove  # type: ignore[method-assign]
        # A nanny that asks for it has told how the process ended.
        self._scheduler.handlers["unregister"] = self._remove_at_once
        adding = self._scheduler.handlers["register-worker"]

        async def add_worker(comm: Any, **kwargs: Any) -> Any:
            await self._make_way(kwargs["name"])
            return await adding(comm, **kwargs)

        self._scheduler.handlers["register-worker"] = add_worker

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Forget how an earlier worker at this address ended; ports may be fixed."""
        _reasons.pop(worker, None)
        _samples.pop(worker, None)

    def log_event(self, topic: str, msg: Any) -> None:
        """Note what a worker or a nanny reports."""
        if topic != exits.EVENTS:
            return
        worker = self._worker_of(msg)
        # A worker's own word comes before its nanny's, and tells more than an exit code.
        _reasons.setdefault(worker, msg["reason"])
        if worker in self._waiting:
            self._waiting[worker].set()

    def _worker_of(self, msg: dict[str, str]) -> str:
        """Return the address of the worker that a message is about.

        A nanny whose worker ended before it heard of its start does not know the address.
        """
        if msg["worker"] not in self._scheduler.workers and msg.get("nanny"):
            for worker in self._scheduler.workers.values():
                if worker.nanny == msg["nanny"]:
                    return worker.address
        return msg["worker"]

    async def _remove(self, address: str, **kwargs: Any) -> Any:
        worker = self._scheduler.workers.get(address)
        if worker is not None and not kwargs.get("expected"):
            _samples.setdefault(address, _sample(worker))
            await self._hear_of(worker)
            if self._scheduler.workers.get(address) is not worker:
                # Its successor has made it go, and may have the same address.
                return "already-removed"
        return await self._removing(address, **kwargs)

    async def _remove_at_once(self, address: str, **kwargs: Any) -> Any:
        worker = self._scheduler.workers.get(address)
        if worker is not None:
            _samples.setdefault(address, _sample(worker))
        return await self._removing(address, **kwargs)

    async def _make_way(self, name: Any) -> None:
        """End the wait for word on a worker whose successor is here, which must get the name."""
        address = self._scheduler.aliases.get(name)
        if address in self._waiting:
            self._waiting[address].set()
            await self._removing(address, stimulus_id=f"successor-{time()}")

    async def _hear_of(self, worker: WorkerState) -> None:
        """Wait for the reason of an end, if a task is about to be given up because of it.

        The closed connection is noticed before the nanny has reported how the process ended.
        """
        if worker.address in _reasons or not worker.nanny:
            return
        allowed = self._scheduler.allowed_failures
        if all(task.suspicious < allowed for task in worker.processing):
            return
        told = self._waiting.setdefault(worker.address, asyncio.Event())
        # No further task may be sent to it, and be given up in its turn.
        self._scheduler.handle_worker_status_change(Status.closing, worker, f"ended-{time()}")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await told.wait()
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
            reason = _reasons.get(address, "nobody reported how its process ended")
            error.add_note(
                f"gpusched: {address}: {reason}; memory at its last heartbeat: {_samples[address]}"
            )

    KilledWorker.__init__ = explained  # type: ignore[method-assign, assignment]


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
