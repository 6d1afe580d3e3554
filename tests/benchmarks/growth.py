"""How time grows with size and with workers, and what a task, a kernel and a message cost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
from distributed import Client, wait

from gpusched import Cluster, disable, enable
from tests.benchmarks.overhead import SETTINGS, chunk_task, seconds, ten_operations
from tests.benchmarks.simulation import Costs
from tests.benchmarks.works import black_scholes, tiny

SCALES = (1, 4, 16, 64)
WORKERS = (1, 2)
ELEMENTS, CHUNK = 1 << 20, 1 << 18
"""Of W1 at its smallest, and of each of its chunks."""
TASKS = 500
"""Chunks of W11 at its smallest."""
GPU_BANDWIDTH = 3.0e12
"""Bytes a second of the GPUs that are simulated: about 0.9 of an H100's."""
NETWORK = 1e-4
"""Seconds of a message between machines, at least."""


@dataclass(frozen=True)
class Growth:
    """One work at one size."""

    work: str
    scale: int
    workers: int
    fused: bool
    seconds: float


def options(scale: int) -> Any:
    """Return the means of an option book's prices and Greeks (W1); each task makes its inputs."""
    random = da.random.default_rng(0)
    ranges = ((20, 200), (20, 200), (0.05, 3))
    inputs = [random.uniform(*each, ELEMENTS * scale, chunks=CHUNK) for each in ranges]
    found = black_scholes.greeks(black_scholes.tanh_form, da, *inputs)
    return [each.mean() for each in found]


def tiny_chunks(scale: int) -> Any:
    """Return the sum over many chunks of a hundred elements (W11)."""
    return tiny.total(da.full(TASKS * scale * tiny.ELEMENTS, 0.5, chunks=tiny.ELEMENTS))


WORKS = {"W1": options, "W11": tiny_chunks}


def measure(rounds: int, largest: int) -> list[Growth]:
    """Return the seconds of each work and size, with fusion and without; medians of the small."""
    found = []
    for workers in WORKERS:
        with Cluster(workers, 1, gpus=0, silence_logs=50) as cluster, Client(cluster) as client:
            client.wait_for_workers(workers)
            for name, build in WORKS.items():
                for fused in (True, False):
                    with enable() if fused else disable():
                        dask.compute(build(1))
                        for scale in (each for each in SCALES if each <= largest):
                            times = [
                                _timed(build, scale) for _ in range(1 if scale > 4 else rounds)
                            ]
                            found.append(Growth(name, scale, workers, fused, median(times)))
                            print(found[-1], file=sys.stderr)
    return found


def _timed(build: Any, scale: int) -> float:
    start = perf_counter()
    dask.compute(build(scale))
    return perf_counter() - start


def costs(tasks: int = 1000) -> Costs:
    """Return what was measured here, with the bandwidth and the network of the GPUs assumed.

    The scheduler's and the worker's seconds are those of their processes' CPU: on two cores they
    would wait for each other.
    """
    with _processes() as (client, scheduler, worker):
        array = da.full(tasks * 100, 0.5, chunks=100) * 2
        with disable():
            wait((array[: 100 * 100] + 1).persist())  # imports what tasks need
            before = _cpu(scheduler), _cpu(worker)
            kept = array.persist()
            wait(kept)
            after = _cpu(scheduler), _cpu(worker)
        trips = [_trip(client) for _ in range(200)]
    return Costs(
        scheduler=(after[0] - before[0]) / tasks,
        worker=(after[1] - before[1]) / tasks,
        launch=launch(),
        latency=max(NETWORK, median(trips) / 2),
        bandwidth=GPU_BANDWIDTH,
    )


def launch() -> float:
    """Return the seconds of a known program of one kernel on chunks of hardly any elements."""
    x, y = np.full(16, 0.5), np.full(16, 0.25)
    with dask.config.set(SETTINGS), enable():
        array = ten_operations(da.from_array(x), da.from_array(y))
        program, inputs = chunk_task(array)
        program(*inputs)
        return median(seconds(lambda: program(*inputs), 1000) for _ in range(5))


def _trip(client: Client) -> float:
    start = perf_counter()
    client.run_on_scheduler(int)
    return perf_counter() - start


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def _processes() -> Iterator[tuple[Client, int, int]]:
    """Start distributed's scheduler and one worker as processes of their own."""
    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "scheduler.json"
        common = ["--scheduler-file", str(file), "--no-dashboard"]
        scheduler = stack.enter_context(_running("dask_scheduler", *common, "--port", "0"))
        worker = stack.enter_context(
            _running("dask_worker", *common, "--no-nanny", "--nthreads", "1")
        )
        client = stack.enter_context(Client(scheduler_file=str(file), timeout="60s"))
        client.wait_for_workers(1)
        yield client, scheduler, worker


@contextmanager
def _running(module: str, *arguments: str) -> Iterator[int]:
    command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.terminate()
