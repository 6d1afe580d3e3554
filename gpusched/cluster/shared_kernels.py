"""Compiled kernels on the scheduler: what one worker has compiled, the others need not.

The scheduler keeps sealed bytes, and neither unpickles nor runs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from dask.utils import parse_bytes
from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from zict import LRU

from gpusched import config
from gpusched.newest import Newest
from gpusched.store import codefiles
from gpusched.workers import version_check
from gpusched.workers.kernel_exchange import GIVE, HERE, KEPT, LATE, MADE, MAKE, REQUEST

logger = logging.getLogger(__name__)

_KNOWN = 100_000
"""Kernels whose owners are remembered."""
_OWNERS = 4
"""Owners remembered of each."""


@dataclass
class Making:
    """A kernel that somebody makes, or reads from disk, while others wait for it."""

    holder: str
    """The address of the worker that is to give it."""
    waiting: dict[asyncio.Future[bytes | str], str] = field(default_factory=dict)
    """Futures of the answers, with the addresses of the workers that wait for them."""

    def answer_next(self) -> bool:
        """Leave the making to the first worker that waits; return whether there is one."""
        for future, worker in list(self.waiting.items()):
            del self.waiting[future]
            if not future.done():
                future.set_result(MAKE)
                self.holder = worker
                return True
        return False

    def answer_all(self, answer: bytes) -> None:
        """Give everybody who waits the code."""
        for future in self.waiting:
            if not future.done():
                future.set_result(answer)
        self.waiting.clear()


class Kernels(SchedulerPlugin):
    """Gives workers the machine code of kernels that other workers have made.

    A worker that has no code for a kernel asks. It is given the code; or it waits, because another
    worker is making it; or the making is its own. What is made comes here, and to all who wait.
    The right to make passes on when its holder leaves the cluster, or says that it cannot.

    `gpusched.cluster.scheduler` installs it. On another scheduler of distributed's each machine
    compiles for itself, until a client registers this.

    Parameters
    ----------
    limit
        Bytes of code to keep, least recently used out first; by default
        ``gpusched.cluster.kernel-memory``. Code that is out is asked of a worker that has it in a
        file.

    Notes
    -----
    Used on the event loop only. Keys say what the code is for: kernel, processor and tools. Nothing
    here looks into them, so workers of different kinds share a scheduler but no code.
    """

    name = "gpusched-kernels"

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._scheduler: Scheduler | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Start to answer a scheduler's workers; called as the plugin is registered."""
        self.install(scheduler)
        for worker in scheduler.workers:
            self.add_worker(scheduler, worker)

    def install(self, scheduler: Scheduler) -> None:
        """Start to answer a scheduler's workers."""
        # Made here, because this is pickled before.
        limit = (
            parse_bytes(config.get("cluster.kernel-memory")) if self.limit is None else self.limit
        )
        self._codes: LRU[str, bytes] = LRU(limit, {}, weight=lambda key, sealed: len(sealed))
        self._making: dict[str, Making] = {}
        self._owners: Newest[str, set[str]] = Newest(_KNOWN)
        self._scheduler = scheduler
        scheduler.handlers[REQUEST] = self.request
        scheduler.stream_handlers |= {MADE: self.made, KEPT: self.kept}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Let a worker of gpusched's know that there is somebody to ask, before its first task."""
        alone = worker.startswith("inproc://")
        if not alone and version_check.HANDSHAKE_KEY in scheduler.workers[worker].extra:
            scheduler.worker_send(worker, {"op": HERE})

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: object) -> None:
        """Forget a worker; what it was making is another's to make."""
        for owners in self._owners.values():
            owners.discard(worker)
        for key, making in list(self._making.items()):
            for future, waiting in list(making.waiting.items()):
                if waiting == worker:
                    del making.waiting[future]
                    future.cancel()
            if making.holder == worker:
                logger.info("worker %s left while it was making kernel %s", worker, key)
                self._pass_on(key)

    async def request(self, key: str, worker: str, patience: float) -> bytes | str:
        """Return sealed code, or `MAKE`, or after so many seconds `LATE`."""
        assert self._scheduler is not None
        sealed = self._codes.get(key)
        if sealed is not None:
            return sealed
        if worker not in self._scheduler.workers:
            return MAKE  # It has left, and cannot end what it would begin.
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = Making(worker)
            if not self._ask_owner(key, making, worker):
                return MAKE
        elif making.holder == worker:
            return MAKE
        return await self._wait(making, worker, patience)

    async def _wait(self, making: Making, worker: str, patience: float) -> bytes | str:
        future = asyncio.get_running_loop().create_future()
        making.waiting[future] = worker
        await asyncio.wait([future], timeout=patience)
        making.waiting.pop(future, None)
        return future.result() if future.done() and not future.cancelled() else LATE

    def made(self, key: str, sealed: bytes | None, worker: str) -> None:
        """Give everybody who waits what a worker has made, or read; None if that failed."""
        if sealed is not None and self._is_whole(key, sealed, worker):
            self._codes[key] = sealed
            making = self._making.pop(key, None)
            if making is not None:
                making.answer_all(sealed)
            return
        self._owners.get(key, set()).discard(worker)
        if key in self._making and self._making[key].holder == worker:
            self._pass_on(key)

    def _is_whole(self, key: str, sealed: bytes, worker: str) -> bool:
        try:
            codefiles.unseal(key, sealed)
        except codefiles.DamagedCodeError as error:
            logger.warning("worker %s gave damaged code for kernel %s: %s", worker, key, error)
            return False
        return True

    def kept(self, key: str, worker: str) -> None:
        """Remember who has code in a file."""
        owners = self._owners[key] = self._owners.get(key, set())
        if len(owners) < _OWNERS:
            owners.add(worker)

    def _pass_on(self, key: str) -> None:
        making = self._making[key]
        if making.waiting and self._ask_owner(key, making):
            return
        if not making.answer_next():
            del self._making[key]

    def _ask_owner(self, key: str, making: Making, but: str = "") -> bool:
        """Let a worker that has code in a file give it; return whether there is one."""
        assert self._scheduler is not None
        for owner in self._others(key, but):
            making.holder = owner
            self._scheduler.worker_send(owner, {"op": GIVE, "key": key})
            return True
        return False

    def _others(self, key: str, but: str) -> Iterator[str]:
        assert self._scheduler is not None
        for owner in sorted(self._owners.get(key, ())):
            if owner != but and owner in self._scheduler.workers:
                yield owner
