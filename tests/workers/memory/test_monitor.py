"""What the memory monitor does where memory is short, and where a disk is full."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from gpusched.workers.memory.monitor import MemoryMonitor
from gpusched.workers.pool import HostPool


class Data:
    """A store that cannot write, until told that it can."""

    closed = False
    host_limit = 100

    def __init__(self, directory: Path) -> None:
        self.files = SimpleNamespace(directory=directory)
        self.disk_error: OSError | None = OSError(28, "No space left on device")
        self.writable = False

        self.held = 200

    def held_on_host(self) -> int:
        return self.held

    def make_room(self, **_: Any) -> Future[int]:
        made: Future[int] = Future()
        if self.writable:
            self.disk_error = None
        made.set_result(0)
        return made


def worker_of(data: Data, status: Status, told: list[Any]) -> Any:
    """Return a worker without a memory limit, that adds to a list what it tells."""
    return SimpleNamespace(
        name="one",
        address="tcp://127.0.0.1:1",
        status=status,
        data=data,
        memory_manager=SimpleNamespace(memory_limit=None),
        admission=SimpleNamespace(is_stuck=False),
        monitor=SimpleNamespace(get_process_memory=lambda: 0),
        log_event=lambda topics, message: told.append((topics, message)),
    )


def test_worker_goes_on_also_where_a_task_has_found_the_disk_writable(tmp_path: Path) -> None:
    worker = worker_of(Data(tmp_path), Status.running, [])
    monitor = MemoryMonitor(worker)
    asyncio.run(monitor.check())
    assert worker.status is Status.paused
    worker.data.disk_error = None
    asyncio.run(monitor.check())
    assert worker.status is Status.running
    # Who pauses it for another reason is not told otherwise.
    worker.status = Status.paused
    asyncio.run(monitor.check())
    assert worker.status is Status.paused


@pytest.mark.parametrize("before", [Status.running, Status.paused])
def test_full_disk_is_told_once_also_by_a_worker_that_memory_has_paused(
    tmp_path: Path, before: Status
) -> None:
    told: list[Any] = []
    worker = worker_of(Data(tmp_path), before, told)
    monitor = MemoryMonitor(worker)

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


def test_full_disk_within_the_limit_of_results_is_told_once_and_lets_tasks_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks that are short of memory find it full again and again; those that are not may run."""
    told: list[Any] = []
    worker = worker_of(Data(tmp_path), Status.running, told)
    monitor = MemoryMonitor(worker)

    def look(held: int) -> Status:
        worker.data.held = held
        asyncio.run(monitor.check())
        found: Status = worker.status
        return found

    assert [look(80) for _ in range(3)] == [Status.running] * 3
    assert [pickle.loads(message["message"]) for _, message in told] == [caplog.messages[0]]
    assert "has tasks wait that need more memory: it cannot spill to" in caplog.messages[0]
    # Results that come in all the same have it paused, and those that go have it go on.
    assert [look(held) for held in (120, 130, 90, 120)] == [
        Status.paused, Status.paused, Status.running, Status.paused,
    ]  # fmt: skip
    assert len(told) == 2
    assert worker.data.disk_error is not None
    worker.data.writable = True
    assert look(120) is Status.running
    assert len(told) == 2


def test_full_disk_pauses_a_worker_of_which_all_tasks_wait(tmp_path: Path) -> None:
    """Others may have these tasks then."""
    told: list[Any] = []
    worker = worker_of(Data(tmp_path), Status.running, told)
    worker.data.held = 80
    monitor = MemoryMonitor(worker)
    found = []
    for worker.admission.is_stuck in (False, True, True, False, False):
        asyncio.run(monitor.check())
        found.append(worker.status)
    assert found == [
        Status.running, Status.paused, Status.paused, Status.running, Status.running,
    ]  # fmt: skip
    assert len(told) == 2


class Manager:
    """distributed's thresholds, and what was done because of them, in order."""

    memory_limit = 1000
    memory_target_fraction = 0.6

    def __init__(self, spill: float | bool, pause: float | bool) -> None:
        self.memory_spill_fraction, self.memory_pause_fraction = spill, pause
        self.done: list[tuple[str, int]] = []

    def _maybe_pause_or_unpause(self, worker: Any, memory: int) -> None:
        self.done.append(("look", memory))


@pytest.mark.parametrize(
    ("spill", "pause", "process", "kept"),
    [
        (0.7, 0.8, 600, True),
        (0.7, 0.8, 750, False),
        (False, 0.8, 750, True),
        (False, 0.8, 850, False),
        (0.7, False, 750, False),
        (False, False, 950, True),
    ],
)
def test_free_buffers_go_before_anything_is_paused_or_spilled(
    monkeypatch: pytest.MonkeyPatch, spill: float | bool, pause: float | bool, process: int,
    kept: bool,
) -> None:  # fmt: skip
    """What the pool keeps is part of what the process takes, and the first that it can spare."""
    buffers = [400]
    manager = Manager(spill, pause)
    monkeypatch.setattr(HostPool, "free_unused", lambda self: buffers.pop() if buffers else 0)
    worker = SimpleNamespace(
        data=SimpleNamespace(
            closed=False, disk_error=None, make_room=lambda **_: pytest.fail("called")
        ),
        memory_manager=manager,
        device=SimpleNamespace(free_unused=lambda: 0),
        monitor=SimpleNamespace(get_process_memory=lambda: process - 400 + sum(buffers)),
    )
    asyncio.run(MemoryMonitor(worker).check())  # type: ignore[arg-type]
    assert bool(buffers) == kept
    assert manager.done == [("look", process if kept else process - 400)]
