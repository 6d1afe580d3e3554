"""What computes: threads, their memory and bandwidth, and what a task costs besides."""

from __future__ import annotations

import functools
import importlib.util
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask

from gpusched.dataclass import dataclass
from gpusched.quantities import count
from gpusched.roles import computing_client, imported
from gpusched.store.processors import cores

BANDWIDTH_ONE, BANDWIDTH_ALL = 10e9, 100e9
"""Bytes per second that a thread, and all threads of a machine, are taken to move.

They are not measured: the first array would wait a quarter of a second for that, as any `rechunk`
asks for the size of chunks, and these, on which sums of floats depend, would follow what else runs.
One machine of two threads has measured what makes chunks of 16, 32, 64 and 128 MiB.
"""
GPU_BANDWIDTH = 1.0e12
"""Bytes per second that a GPU is taken to move where it cannot be asked; many move more."""
TASK = 0.24e-3
"""Seconds that a task is taken to cost in this process, four times as many as one that does
nothing: its part of the graph is built and optimised, and its kernel looked up and launched."""
DISTRIBUTED_TASK = 1e-3
"""Seconds that a task is taken to cost with distributed: its scheduler takes 0.2 to 1 ms."""
REMEMBERED = 10.0
"""Seconds that what a scheduler has reported of its workers is taken for true."""

TRIES = 10
"""How often a scheduler is asked at most: distributed's client also asks it every two seconds, for
no workers, and that answer can take the place of ours."""


@dataclass(frozen=True)
class Target:
    """Threads that compute chunks, each with its share of memory and bandwidth."""

    kind: str
    """``"cpu"`` or ``"cuda"``."""
    threads: int
    """Tasks that run at once, on all machines."""
    memory: int
    """Bytes that each thread may use."""
    bandwidth: float
    """Bytes read and written a second by all threads together."""
    task_seconds: float
    """What each task costs besides its kernels, one after the other."""
    name: str
    """For people."""


def target() -> Target:
    """Return what dask would compute with now: the client's workers, or this process."""
    client = computing_client()
    return here() if client is None else of_client(client)


def here() -> Target:
    """Return this process's threads, and its GPU where dask makes arrays with CuPy."""
    if dask.config.get("array.backend", "numpy") == "cupy":
        return _gpu()
    threads = cores()
    return Target("cpu", threads, _memory() // threads, _bandwidth(threads), TASK,
                  f"{count(threads, 'thread')} of this machine")  # fmt: skip


def _bandwidth(threads: int) -> float:
    """Return the bytes per second that threads of one machine are taken to move together."""
    return min(threads * BANDWIDTH_ONE, BANDWIDTH_ALL)


def _gpu() -> Target:
    """Return CuPy's present GPU, with the bandwidth that its clock and bus allow."""
    import cupy

    device = cupy.cuda.Device()
    told = device.attributes
    # In kHz, and in bits; memory moves data twice a cycle.
    rate = 2 * told["MemoryClockRate"] * 1e3 * told["GlobalMemoryBusWidth"] / 8
    _, memory = device.mem_info
    threads = cores()
    return Target("cuda", threads, int(memory) // threads, float(rate), TASK,
                  f"{count(threads, 'thread')} of this process on one GPU")  # fmt: skip


@functools.cache
def _memory() -> int:
    """Return the bytes of this machine that distributed's workers would share."""
    system = imported("distributed.system")
    if system is None:
        # That module alone: with the package, it takes 0.2 s to import.
        package = importlib.util.find_spec("distributed")
        assert package is not None and package.origin is not None
        path = Path(package.origin).with_name("system.py")
        spec = importlib.util.spec_from_file_location("distributed.system", path)
        assert spec is not None and spec.loader is not None
        system = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(system)
    return int(system.MEMORY_LIMIT)


_told: dict[str, tuple[float, Target]] = {}


def of_client(client: Any) -> Target:
    """Return a client's workers: those with a GPU if there are any, or else all.

    The scheduler's answer is remembered for a while, so that a program that makes many arrays
    does not ask for each.
    """
    name = str(client.scheduler.address) if client.scheduler is not None else str(id(client))
    when, found = _told.get(name, (0.0, None))
    if found is None or time.monotonic() - when > REMEMBERED:
        found = of_workers(_workers(client))
        _told.clear()
        _told[name] = time.monotonic(), found
    return found


def _workers(client: Any) -> Mapping[str, Any]:
    """Return what the scheduler reports of its workers."""
    for _ in range(TRIES):
        told = client.scheduler_info(n_workers=-1)
        if len(told.get("workers", {})) >= told.get("n_workers", 0):
            break
    return told.get("workers", {})


def of_workers(workers: Mapping[str, Any]) -> Target:
    """Return workers as the scheduler describes them.

    Examples
    --------
    >>> from gpusched.chunking.target import of_workers
    >>> gpu = {"kind": "cuda", "name": "H100", "memory_limit": 64_000_000_000}
    >>> worker = {"nthreads": 1, "metrics": {"gpusched": {"device": gpu}}}
    >>> found = of_workers({f"tcp://10.0.0.{k}:40000": worker for k in range(8)})
    >>> found.name, found.memory
    ('8 workers with a GPU', 64000000000)
    """
    gpus = [each for each in workers.values() if _device(each).get("kind") == "cuda"]
    found = gpus or list(workers.values())
    if not found:
        name = "this machine, as there are no workers yet"
        return replace(here(), task_seconds=DISTRIBUTED_TASK, name=name)
    threads = sum(each["nthreads"] for each in found)
    memory = min((_limit(each) // max(1, each["nthreads"]) for each in found), default=0)
    if gpus:
        bandwidth = GPU_BANDWIDTH * len(gpus)
        name = f"{count(len(gpus), 'worker')} with a GPU"
    else:
        on_host: Counter[str] = Counter()
        for address, each in workers.items():
            on_host[address.rpartition(":")[0]] += each["nthreads"]
        bandwidth = sum(map(_bandwidth, on_host.values()))
        name = f"{count(len(found), 'worker')} with {count(threads, 'thread')}"
    return Target("cuda" if gpus else "cpu", threads, memory, bandwidth, DISTRIBUTED_TASK, name)


def _device(worker: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = worker.get("metrics", {}).get("gpusched", {}).get("device", {})
    return found


def _limit(worker: Mapping[str, Any]) -> int:
    """Return the bytes of memory that chunks are in; of this machine where none is reported."""
    device = _device(worker)
    told = device.get("memory_limit") if device.get("kind") == "cuda" else 0
    return int(told or worker.get("memory_limit") or _memory())
