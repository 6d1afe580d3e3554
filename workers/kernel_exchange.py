"""A worker's part in sharing kernels: asks the scheduler for machine code, and gives its own.

Machine code is unpickled and run where it arrives, as tasks are: who may connect to the scheduler
is trusted with both. The checksum finds accidents, not forgeries.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from distributed import Worker, WorkerPlugin
from distributed.comm.core import CommClosedError
from distributed.worker import WORKER_ANY_RUNNING

from gpusched.adapters.distributed import loop_to_wait_for
from gpusched.store import codefiles, sharing

logger = logging.getLogger(__name__)

REQUEST = "gpusched_kernel"
"""What a worker asks the scheduler for machine code by."""
MADE = "gpusched-kernel-made"
"""What it sends with code that it has made; without code, that it cannot give any."""
KEPT = "gpusched-kernel-kept"
"""What it sends when it has code in a file."""
HERE = "gpusched-kernels-here"
"""What a scheduler sends that answers all this."""
GIVE = "gpusched-kernel-give"
"""What a scheduler sends to a worker whose code another one asks for."""

MAKE = "make"
"""The scheduler's answer to whom it leaves the making."""
LATE = "late"
"""The scheduler's answer when another worker has not made the code in time."""

_GRACE = 5.0
"""Seconds that an answer may take beyond the patience that the scheduler was given."""


class WorkerKernels(WorkerPlugin):
    """Exchanges kernels with other workers by way of the scheduler, if that takes part.

    Notes
    -----
    `request`, `publish` and `keep` may be called from any thread but the event loop's; `request`
    blocks it. The event loop never waits for a kernel.

    Examples
    --------
    >>> from distributed import LocalCluster
    >>> from gpusched.workers.kernel_exchange import WorkerKernels
    >>> with LocalCluster(processes=False, dashboard_address=":0") as cluster:
    ...     worker, plugin = cluster.workers[0], WorkerKernels()
    ...     plugin.setup(worker)
    ...     [name for name in worker.stream_handlers if "kernel" in name]
    ['gpusched-kernels-here', 'gpusched-kernel-give']
    """

    name = "gpusched-kernels"
    _worker: Worker

    def setup(self, worker: Worker) -> None:
        """Take part once the scheduler does, by a worker's connections."""
        self._worker = worker
        self._files: dict[str, Path] = {}
        worker.stream_handlers |= {HERE: self._join, GIVE: self._give_later}

    def _join(self) -> None:
        # Also after `teardown`, from a scheduler that has not heard of the worker's end.
        if self._worker.status in WORKER_ANY_RUNNING and self not in sharing.exchanges:
            sharing.exchanges.append(self)

    def teardown(self, worker: Worker) -> None:
        """Exchange nothing any more."""
        if self in sharing.exchanges:
            sharing.exchanges.remove(self)

    def request(self, key: str, patience: float) -> bytes | None:
        """Return sealed code that another worker has made; None if it is this one's to make.

        Raises `NotSharedError` if there was no answer, or the worker that makes it takes too long.
        """
        worker = self._worker
        loop = loop_to_wait_for(worker)
        if loop is None:
            raise sharing.NotSharedError("the event loop cannot wait for other workers")
        asking = self._ask(key, patience)
        try:
            answering = asyncio.run_coroutine_threadsafe(asking, loop)
        except RuntimeError as error:
            asking.close()
            raise sharing.NotSharedError("the worker is closed") from error
        try:
            answer = answering.result(patience + 2 * _GRACE)
        except Exception as error:
            # Whatever became of the connection, or of the scheduler: the kernel can be made here.
            answering.cancel()
            logger.info("no answer about kernel %s: %r", key, error)
            raise sharing.NotSharedError("the scheduler did not answer") from error
        if answer == LATE:
            raise sharing.NotSharedError("another worker took too long")
        return answer if isinstance(answer, bytes) else None

    async def _ask(self, key: str, patience: float) -> Any:
        asked = getattr(self._worker.scheduler, REQUEST)
        async with asyncio.timeout(patience + _GRACE):
            return await asked(key=key, worker=self._worker.address, patience=patience)

    def publish(self, key: str, sealed: bytes | None) -> None:
        """Give others what was made; None if it cannot be given, or could not be made."""
        self._worker.loop.add_callback(self._tell, {"op": MADE, "key": key, "sealed": sealed})

    def keep(self, key: str, path: Path) -> None:
        """Let others know that code is in a file here."""
        if self._files.get(key) != path:
            self._files[key] = path
            self._worker.loop.add_callback(self._tell, {"op": KEPT, "key": key})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._worker.batched_stream.send(message)
        except CommClosedError:
            logger.info("the scheduler is gone, and did not get: %s", message["op"])

    def _give_later(self, key: str) -> None:
        self._worker.loop.add_callback(self._give, key)

    async def _give(self, key: str) -> None:
        path = self._files.pop(key, None)
        content = await asyncio.to_thread(codefiles.read, path) if path else None
        if path and content is not None:
            self._files[key] = path
        self._tell({"op": MADE, "key": key, "sealed": content})
