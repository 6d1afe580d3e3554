"""What the memory monitor does where a disk is full."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from gpusched.workers.memory.monitor import MemoryMonitor


class Data:
    """A store that cannot write, until told that it can."""

    closed = False
    host_limit = 100

    def __init__(self, directory: Path) -> None:
        self.files = SimpleNamespace(directory=directory)
        self.disk_error: OSError | None = OSError(28, "No space left on device")
        self.writable = False

    def held_on_host(self) -> int:
        return 200

    def make_room(self, **_: Any) -> Future[int]:
        made: Future[int] = Future()
        if self.writable:
            self.disk_error = None
        made.set_result(0)
        return made


@pytest.mark.parametrize("before", [Status.running, Status.paused])
def test_full_disk_is_told_once_also_by_a_worker_that_memory_has_paused(
    tmp_path: Path, before: Status
) -> None:
    told: list[Any] = []
    worker = SimpleNamespace(
        name="one",
        address="tcp://127.0.0.1:1",
        status=before,
        data=Data(tmp_path),
        memory_manager=SimpleNamespace(memory_limit=None),
        monitor=SimpleNamespace(get_process_memory=lambda: 0),
        log_event=lambda topics, message: told.append((topics, message)),
    )
    monitor = MemoryMonitor(worker)  # type: ignore[arg-type]

    def look(times: int) -> None:
        for _ in range(times):
            asyncio.run(monitor.check())

    look(3)
    assert worker.status is Status.paused
    assert [topics for topics, _ in told] == [["gpusched-disk", "warn"]]
    worker.data.writable = True
    look(2)
    assert worker.status is Status.running
    # The next time it is full is told again.
    worker.data.writable, worker.data.disk_error = False, OSError(28, "No space left on device")
    look(2)
    assert worker.status is Status.paused
    assert len(told) == 2
