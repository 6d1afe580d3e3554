"""Garbage on the ports, and a scheduler that goes away: clear errors, and nothing else harmed."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, wait
from distributed.client import FutureCancelledError

from tests.tiers import starts_processes
from tests.waiting import PATIENCE, address_in

from .conftest import Harmed

Start = Callable[..., Harmed]


def send(address: str, content: bytes) -> None:
    """Send bytes to a server, and wait until it hangs up or has had time to think."""
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            # Hung up on, which is what garbage deserves.
            return


GARBAGE = [
    b"",
    b"\0",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    random.Random(0).randbytes(100_000),
    struct.pack("<Q", 8) + b"\xff" * 8,
    # A frame that claims four terabytes, and one that claims almost all there are.
    struct.pack("<QQQ", 2**42, 1, 2**42),
    struct.pack("<QQQ", 2**63, 1, 2**63 - 8),
    struct.pack("<Q", 2**30),
    b"\x80\x04\x95" + b"pickle" * 10,
]


def test_garbage_on_every_port_harms_nobody(start: Start) -> None:
    harmed = start(1)
    info = harmed.client.sync(harmed.client.scheduler.identity)["workers"]
    addresses = [harmed.cluster.scheduler_address, *info, *(w["nanny"] for w in info.values())]
    pids = harmed.pids()
    before = psutil.Process().memory_info().rss
    for address in addresses:
        for content in GARBAGE:
            send(address, content)
    assert harmed.client.submit(sum, range(10)).result(timeout=PATIENCE) == 45
    assert harmed.pids() == pids
    assert psutil.Process().memory_info().rss < before + 200e6


def flipping(times: int) -> list[int]:
    """Change one byte of so many large messages that this process receives; return what is left."""
    from distributed.comm import tcp

    read = tcp.from_frames
    left = [times]

    async def damaged(frames: Any, *args: Any, **kwargs: Any) -> Any:
        largest = max(range(len(frames)), key=lambda k: memoryview(frames[k]).nbytes)
        # A scheduler in this process reads no results, and passes them on.
        reads = kwargs.get("deserialize", True)
        if left[0] and reads and memoryview(frames[largest]).nbytes > 100_000:
            left[0] -= 1
            data = bytearray(frames[largest])
            data[len(data) // 2] ^= 1
            frames = [*frames[:largest], memoryview(data), *frames[largest + 1 :]]
        return await read(frames, *args, **kwargs)

    tcp.from_frames = damaged  # type: ignore[assignment]
    return left


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2, 4])
def test_bytes_that_change_between_workers_cost_time_and_nothing_else(
    start: Start, times: int
) -> None:
    harmed = start(2)
    client = harmed.client
    sender, receiver = client.sync(client.scheduler.identity)["workers"]

    def receiving(dask_worker: Any, flip: Any = flipping) -> None:
        dask_worker.flips_left = flip(times)

    client.run(receiving, workers=[receiver])
    # Random, so that they are not compressed to a small message.
    numbers = client.submit(np.random.default_rng(0).random, 100_000, workers=[sender])
    total = client.submit(np.sum, numbers, workers=[receiver])
    assert total.result(timeout=PATIENCE) == np.random.default_rng(0).random(100_000).sum()
    left = client.run(lambda dask_worker: dask_worker.flips_left[0], workers=[receiver])
    assert left == {receiver: 0}


def computed(seed: int, path: Path) -> np.ndarray:
    with path.open("a") as file:
        file.write("x")
    return np.random.default_rng(seed).random(100_000)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3, 5])
def test_bytes_that_change_on_the_way_to_the_client_cost_time_and_nothing_else(
    start: Start, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed.comm import tcp

    harmed = start(1)
    path = tmp_path / "calls"
    futures = [harmed.client.submit(computed, k, path, key=("computed", k)) for k in range(2)]
    futures += harmed.client.map(abs, range(3))
    wait(futures)
    monkeypatch.setattr(tcp, "from_frames", tcp.from_frames)
    left = flipping(times)
    found = harmed.client.gather(futures)
    assert left == [0]
    for k in range(2):
        np.testing.assert_array_equal(found[k], np.random.default_rng(k).random(100_000))
    assert found[2:] == [0, 1, 2]
    # All are asked for at once, then each by itself and twice: then it is computed again.
    assert len(path.read_text()) == 2 + (times >= 3) + (times >= 5)


class Served:
    """A scheduler and a worker in processes of their own, from the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gpusched", *arguments]
        log = open(self.folder / f"{len(self.processes)}.log", "wb")  # noqa: SIM115
        with log:
            process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        return process

    def scheduler(self, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
        file = self.folder / f"scheduler-{len(self.processes)}.json"
        flags = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
        process = self.run("scheduler", *flags, *arguments)
        return process, address_in(file)

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            process.wait(timeout=PATIENCE)


@pytest.fixture
@starts_processes
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def test_scheduler_that_restarts_is_a_clear_error_for_its_clients(served: Served) -> None:
    scheduler, address = served.scheduler("--port", "0")
    worker = served.run("worker", address, "--cpu", "--nthreads", "1", "--no-dashboard")
    with Client(address, timeout=PATIENCE, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        endless = client.submit(time.sleep, 1000)  # noqa: TID251
        scheduler.kill()
        scheduler.wait()
        with pytest.raises(FutureCancelledError, match="scheduler-connection-lost"):
            endless.result(timeout=PATIENCE)
        # The worker leaves, since a new scheduler knows nothing of what it holds.
        worker.wait(timeout=PATIENCE)
    again, _ = served.scheduler("--port", address.rpartition(":")[2])
    served.run("worker", address, "--cpu", "--nthreads", "1", "--no-dashboard")
    with Client(address, timeout=PATIENCE, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        assert client.submit(lambda: 7).result(timeout=PATIENCE) == 7
    assert again.poll() is None
