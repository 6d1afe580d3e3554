"""Workers and nannies that are killed, stopped, or leave: the results are right all the same."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import KilledWorker, as_completed, wait
from distributed.core import Status

from gpusched.cluster import exit_reasons
from gpusched.workers import exits
from gpusched.workers.device import LostContextError
from gpusched.workers.nanny import DeviceNanny
from tests.waiting import PATIENCE, wait_for, wait_gone

from .conftest import Harmed

Start = Callable[..., Harmed]


def once(folder: str, action: Callable[[], Any], value: Any) -> Any:
    """Do something the first time this runs in a folder, and return a value each time."""
    mark = Path(folder) / "done"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return value
    action()
    return value


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def poison() -> None:
    raise LostContextError("CUDA_ERROR_ILLEGAL_ADDRESS: told by the test")


def take_memory() -> int:
    taken = np.ones(60_000_000)
    threading.Event().wait(60)
    return taken.size


@pytest.mark.parametrize("harm", [pytest.param(die, marks=pytest.mark.essential), poison])
def test_task_of_a_worker_that_dies_is_run_again(
    start: Start, tmp_path: Path, harm: Callable[[], None]
) -> None:
    harmed = start(1)
    before = harmed.pids()
    assert harmed.client.submit(once, str(tmp_path), harm, 7).result(timeout=PATIENCE) == 7
    assert harmed.pids() != before


def test_exit_code_of_a_lost_device_is_the_known_one(start: Start, tmp_path: Path) -> None:
    harmed = start(1)
    harmed.client.submit(once, str(tmp_path), poison, 7).result(timeout=PATIENCE)
    told = [event for _, event in harmed.client.get_events(exits.EVENTS)]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS: told by the test" in told[0]["reason"]
    assert f"exit code {exits.LOST_CONTEXT}" in told[1]["reason"]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(die, "was ended by SIGKILL"), (poison, "CUDA_ERROR_ILLEGAL_ADDRESS: told by the test")],
)
def test_task_that_is_given_up_says_why(
    start: Start, harm: Callable[[], None], reason: str
) -> None:
    harmed = start(1, {"distributed.scheduler.allowed-failures": 0})
    future = harmed.client.submit(harm)
    with pytest.raises(KilledWorker) as caught:
        future.result(timeout=PATIENCE)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert reason in shown
    assert "memory at its last heartbeat: host" in shown


@pytest.mark.parametrize("code", [0, 3])
def test_task_that_ends_its_process_is_given_up_and_says_so(
    start: Start, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    harmed = start(1, {"distributed.scheduler.allowed-failures": 3}, silence_logs=False)
    future = harmed.client.submit(os._exit, code)
    with caplog.at_level(logging.WARNING), pytest.raises(KilledWorker) as caught:
        future.result(timeout=PATIENCE)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert f"its process left with exit code {code}" in shown
    assert harmed.client.submit(lambda: 7).result(timeout=PATIENCE) == 7
    assert "name taken" not in caplog.text
    assert "duplicate name" not in caplog.text


def test_worker_that_replaces_another_does_not_wait_for_word_of_its_end(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell_nothing(*arguments: Any) -> None:
        pass

    monkeypatch.setattr(exit_reasons, "_PATIENCE", 600)
    monkeypatch.setattr(DeviceNanny, "_tell", tell_nothing)
    monkeypatch.setattr(DeviceNanny, "_unregister", tell_nothing)
    harmed = start(1, {"distributed.scheduler.allowed-failures": 0})
    future = harmed.client.submit(die)
    with pytest.raises(KilledWorker) as caught:
        future.result(timeout=PATIENCE)
    assert "nobody reported how its process ended" in caught.value.__notes__[0]
    assert harmed.client.submit(lambda: 7).result(timeout=PATIENCE) == 7


def test_worker_that_ends_before_its_nanny_knows_its_address(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_reasons, "_PATIENCE", 600)
    harmed = start(1, {"distributed.scheduler.allowed-failures": 0})
    (nanny,) = harmed.cluster.workers.values()
    nanny.process.worker_address = None
    future = harmed.client.submit(die)
    with pytest.raises(KilledWorker) as caught:
        future.result(timeout=PATIENCE)
    assert "its process was ended by SIGKILL" in caught.value.__notes__[0]


def test_worker_that_is_slow_to_come_back_is_not_given_up(start: Start) -> None:
    harmed = start(1, {"distributed.deploy.lost-worker-timeout": "10ms"})
    (nanny,) = harmed.cluster.workers.values()
    (pid,) = harmed.pids().values()
    harmed.kill(pid)
    assert harmed.client.submit(lambda: 7).result(timeout=PATIENCE) == 7
    assert harmed.pids()[0] != pid
    assert list(harmed.cluster.workers.values()) == [nanny]
    assert nanny.status == Status.running


def test_nanny_gives_up_a_worker_that_ends_before_each_first_task(
    start: Start, tmp_path: Path
) -> None:
    broken, preload = tmp_path / "broken", tmp_path / "leaves.py"
    preload.write_text(
        "import os\n"
        "def dask_setup(worker):\n"
        f"    if os.path.exists({str(broken)!r}):\n"
        "        os._exit(3)\n"
    )
    harmed = start(1, worker_options={"preload": [str(preload)]})
    (nanny,) = harmed.cluster.workers.values()
    (pid,) = harmed.pids().values()
    broken.touch()
    harmed.kill(pid)
    wait_for(lambda: nanny.status == Status.closed)
    assert nanny.gave_up.endswith("the last one left with exit code 3")


def test_nanny_that_is_gone_is_given_up(start: Start) -> None:
    harmed = start(1, {"distributed.deploy.lost-worker-timeout": "10ms"})
    (nanny,) = harmed.cluster.workers.values()
    harmed.cluster.sync(nanny.close)
    wait_for(lambda: not harmed.cluster.workers)


def test_end_that_was_asked_for_is_no_news(start: Start) -> None:
    harmed = start(1)
    before = harmed.pids()
    harmed.client.restart(timeout=PATIENCE)
    assert harmed.pids() != before
    assert harmed.client.get_events(exits.EVENTS) == ()


def test_task_that_takes_all_memory_says_so(start: Start) -> None:
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.worker.memory.terminate": 0.95,
    }
    harmed = start(1, settings, memory_limit="300 MiB")
    future = harmed.client.submit(take_memory)
    with pytest.raises(KilledWorker) as caught:
        future.result(timeout=PATIENCE)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert "was ended by its nanny, because it took more than 95% of its 300.00 MiB" in shown
    assert "smaller chunks" in shown


def test_worker_killed_while_it_sends(start: Start) -> None:
    harmed = start(2)
    client = harmed.client
    first, second = harmed.pids()
    x = client.submit(np.ones, 20_000_000, workers=[first], allow_other_workers=True)
    wait(x)
    total = client.submit(lambda x: float(x.sum()), x, workers=[second], allow_other_workers=True)
    harmed.kill(harmed.pids()[first])
    assert total.result(timeout=PATIENCE) == 20_000_000


def test_worker_killed_while_it_spills(start: Start) -> None:
    harmed = start(2, memory_limit="500 MiB")
    x = da.random.default_rng(0).random(120_000_000, chunks=1_000_000)
    kept = x.persist()
    (spilling,) = wait_for(lambda: _spilling(harmed)[:1])
    harmed.kill(harmed.pids()[spilling])
    assert kept.sum().compute() == pytest.approx(x.sum().compute())


def _spilling(harmed: Harmed) -> list[Any]:
    """Return the names of the workers that have begun to spill."""
    workers = harmed.client.sync(harmed.client.scheduler.identity)["workers"].values()
    return [
        worker["name"]
        for worker in workers
        if worker["metrics"].get("gpusched", {}).get("spill", {}).get("written_bytes", 0)
    ]


def test_nanny_that_is_killed_takes_its_worker_along(start: Start, tmp_path: Path) -> None:
    harmed = start(1)
    from subprocess import Popen
    from sys import executable

    code = (
        "import asyncio, sys\n"
        "from gpusched.workers.nanny import DeviceNanny\n"
        "async def main():\n"
        "    async with DeviceNanny(sys.argv[1], nthreads=1, name='other', dashboard=False) as n:\n"
        "        await n.finished()\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    script = tmp_path / "nanny.py"
    script.write_text(code)
    nanny = Popen([executable, str(script), harmed.cluster.scheduler_address], cwd=tmp_path)
    harmed.client.wait_for_workers(2, timeout=PATIENCE)
    worker = psutil.Process(harmed.pids()["other"])
    futures = harmed.client.map(lambda x: x + 1, range(20))
    nanny.kill()
    nanny.wait()
    assert harmed.client.gather(futures) == list(range(1, 21))
    wait_gone([worker])


def test_worker_that_is_stopped_for_long_is_replaced(start: Start) -> None:
    harmed = start(2, {"distributed.scheduler.worker-ttl": "4s"})
    pid = next(iter(harmed.pids().values()))
    futures = harmed.client.map(lambda x: x * 2, range(200))
    harmed.kill(pid, signal.SIGSTOP)
    assert harmed.client.gather(futures) == [2 * k for k in range(200)]
    wait_for(lambda: not psutil.pid_exists(pid))
    harmed.client.wait_for_workers(2, timeout=PATIENCE)


def test_worker_that_is_stopped_for_a_while_goes_on(start: Start) -> None:
    harmed = start(1)
    pid = harmed.pids()[0]
    futures = harmed.client.map(lambda x: x * 2, range(200))
    harmed.kill(pid, signal.SIGSTOP)
    # The process does stop before it goes on.
    wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    harmed.kill(pid, signal.SIGCONT)
    assert harmed.client.gather(futures) == [2 * k for k in range(200)]
    assert harmed.pids() == {0: pid}


def test_restart_gives_new_processes(start: Start) -> None:
    harmed = start(2, memory_limit="500 MiB")
    before = set(harmed.pids().values())
    x = da.ones(60_000_000, chunks=1_000_000).persist()
    wait(x)
    harmed.client.restart(timeout=PATIENCE)
    after = set(harmed.pids().values())
    assert len(after) == 2
    assert not before & after
    assert da.ones(10).sum().compute() == 10


def square(x: int) -> int:
    return x * x


@pytest.mark.exhaustive
def test_thousands_of_tasks_while_workers_are_killed_again_and_again(start: Start) -> None:
    harmed, rng, found, kills = start(3), random.Random(0), list[int](), 0
    doubled = harmed.client.map(lambda k: 2 * k, range(500), pure=False)
    waiting = as_completed(harmed.client.map(square, doubled), with_results=True)
    del doubled
    while len(found) < 500:
        # As results arrive, rather than as time passes: machines differ in how fast they are.
        if len(found) >= 125 * kills:
            kills += kill_one(harmed, rng)
        # What has been collected is let go, so that nobody computes it again.
        for future, result in waiting.next_batch():
            found.append(result)
            future.release()
    assert sorted(found) == [(2 * k) ** 2 for k in range(500)]
    assert kills


def kill_one(harmed: Harmed, rng: random.Random) -> int:
    """Kill a worker, and return how many were killed: none if all are about to start."""
    pids = [nanny.pid for nanny in harmed.cluster.workers.values() if nanny.pid]
    try:
        harmed.kill(rng.choice(pids))
    except (IndexError, ProcessLookupError):
        return 0
    return 1


def test_device_is_the_workers_own(start: Start) -> None:
    harmed = start(1)
    kinds = harmed.client.run(lambda dask_worker: dask_worker.device.kind)
    assert set(kinds.values()) == {"cpu"}


HOLDING = """
import ctypes, os, sys
from distributed import Client
from gpusched import Cluster

def hold():
    # Calls C without giving back the interpreter's lock.
    print(os.getpid(), flush=True)
    ctypes.PyDLL(None).sleep(600)

if __name__ == "__main__":
    cluster = Cluster(1, 1, gpus=0)
    Client(cluster).submit(hold).result()
"""


@pytest.mark.processes
def test_worker_that_holds_the_interpreters_lock_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "holding.py"
    script.write_text(HOLDING)
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    wait_gone([worker])
