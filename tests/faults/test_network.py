"""Garbage on the ports, and a scheduler that goes away: clear errors, and nothing else harmed."""

from __future__ import annotations

import os
import pickle
import random
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, wait
from distributed.client import FutureCancelledError
from distributed.comm import tcp

from gpusched.serialization.frames import CorruptFrameError
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


def flipping(read: Any, left: list[int]) -> Any:
    """Return what reads frames, with one byte changed in so many large messages.

    A scheduler passes results on without reading them, perhaps in this process: not there.
    """

    async def damaged(frames: Any, *args: Any, **kwargs: Any) -> Any:
        largest = max(range(len(frames)), key=lambda k: memoryview(frames[k]).nbytes)
        large = memoryview(frames[largest]).nbytes > 100_000
        if left[0] and large and kwargs.get("deserialize", True):
            left[0] -= 1
            data = bytearray(frames[largest])
            data[len(data) // 2] ^= 1
            frames = [*frames[:largest], memoryview(data), *frames[largest + 1 :]]
        return await read(frames, *args, **kwargs)

    return damaged


def flip_at(worker: Any, times: int) -> None:
    """Change one byte of so many large messages that a worker receives."""
    from distributed.comm import tcp

    worker.flips_left = [times]
    tcp.from_frames = flipping(tcp.from_frames, worker.flips_left)


def numbers(seed: int, runs: str = os.devnull) -> Any:
    """Make numbers that are not compressed to a small message, and note that in a file."""
    with open(runs, "a") as file:
        file.write("run\n")
    return np.random.default_rng(seed).random(100_000)


class Text:
    """An object that only pickle knows."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def made(kind: str) -> Any:
    """Make something of 800,000 bytes, of one kind."""
    if kind == "array":
        return numbers(0)
    content = numbers(0).tobytes()
    if kind == "object":
        return [Text(content.hex())]
    return {"bytes": content, "array in a dict": {"a": numbers(0), "n": content[:9]}}.get(
        kind, {"some": content, "array": numbers(1)}
    )


def read(value: Any) -> int:
    """Return a number for what was received."""
    return zlib.crc32(pickle.dumps(value))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "times"),
    [("array", 1), ("array", 2), ("array", 4), ("array in a dict", 1), ("bytes", 1), ("bytes", 4),
     ("dict of bytes", 1), ("dict of bytes", 4), ("object", 1), ("object", 4)],
)  # fmt: skip
def test_bytes_that_change_between_workers_cost_time_and_nothing_else(
    start: Start, kind: str, times: int
) -> None:
    harmed = start(2)
    client = harmed.client
    sender, receiver = client.sync(client.scheduler.identity)["workers"]

    def receiving(dask_worker: Any, flip: Any = flip_at) -> None:
        flip(dask_worker, times)

    client.run(receiving, workers=[receiver])
    result = client.submit(made, kind, workers=[sender])
    found = client.submit(read, result, workers=[receiver])
    assert found.result(timeout=PATIENCE) == read(made(kind))
    left = client.run(lambda dask_worker: dask_worker.flips_left[0], workers=[receiver])
    assert left == {receiver: 0}


@pytest.mark.slow
@pytest.mark.parametrize(("times", "runs"), [(1, 1), (2, 1), (3, 2), (6, 3)])
def test_bytes_that_change_on_the_way_to_a_client_cost_time_and_nothing_else(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, runs: int
) -> None:
    client = start(1).client
    file, left = tmp_path / "runs", [times]
    made = client.submit(numbers, 0, str(file), pure=False)
    wait(made, timeout=PATIENCE)
    monkeypatch.setattr(tcp, "from_frames", flipping(tcp.from_frames, left))
    np.testing.assert_array_equal(made.result(timeout=PATIENCE), numbers(0))
    assert left == [0]
    # Asked for twice more before it is computed again.
    assert file.read_text().count("run") == runs


@pytest.mark.slow
def test_of_many_results_only_the_damaged_one_is_computed_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(1).client
    files, left = [tmp_path / str(seed) for seed in range(4)], [3]
    made = [client.submit(numbers, seed, str(file)) for seed, file in enumerate(files)]
    wait(made, timeout=PATIENCE)
    monkeypatch.setattr(tcp, "from_frames", flipping(tcp.from_frames, left))
    for seed, found in enumerate(client.gather(made)):
        np.testing.assert_array_equal(found, numbers(seed))
    assert left == [0]
    assert sum(file.read_text().count("run") for file in files) == 5


@pytest.mark.slow
def test_data_that_nothing_can_compute_again_is_an_error_and_stays(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, left = start(2).client, [1000]
    given = client.scatter(numbers(0))
    with monkeypatch.context() as patch:
        patch.setattr(tcp, "from_frames", flipping(tcp.from_frames, left))
        with pytest.raises(CorruptFrameError, match="checksum"):
            given.result(timeout=PATIENCE)
    np.testing.assert_array_equal(given.result(timeout=PATIENCE), numbers(0))


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
    worker = served.run("worker", address, "--cpu", "--threads", "1", "--no-dashboard")
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
    served.run("worker", address, "--cpu", "--threads", "1", "--no-dashboard")
    with Client(address, timeout=PATIENCE, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        assert client.submit(lambda: 7).result(timeout=PATIENCE) == 7
    assert again.poll() is None
