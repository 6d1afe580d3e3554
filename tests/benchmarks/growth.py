"""How time grows with size and with workers, and what a task, a kernel and a message cost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
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
    """Return the seconds of each work and size, with fusion and without; medians of the small.

    One worker and two, fused and plain, take turns at each size, so that a slow moment of the
    machine falls on all of them.
    """
    found = []
    with ExitStack() as stack:
        clients = {workers: stack.enter_context(_cluster(workers)) for workers in WORKERS}
        cases = [(client, workers, fused) for fused in (True, False)
                 for workers, client in clients.items()]  # fmt: skip
        for name, build in WORKS.items():
            for client, _, fused in cases:
                _timed(client, fused, build, 1)
            for scale in (each for each in SCALES if each <= largest):
                for client, workers, fused in cases * (1 if scale > 4 else rounds):
                    seconds = _timed(client, fused, build, scale)
                    found.append(Growth(name, scale, workers, fused, seconds))
                    print(found[-1], file=sys.stderr)
    return medians(found)


def medians(found: list[Growth]) -> list[Growth]:
    """Return one for all that were timed of each work and size.

    Examples
    --------
    >>> from tests.benchmarks.growth import Growth, medians
    >>> medians([Growth("W1", 4, 1, True, seconds) for seconds in (3.0, 1.0, 2.0)])
    [Growth(work='W1', scale=4, workers=1, fused=True, seconds=2.0)]
    """
    times: defaultdict[Growth, list[float]] = defaultdict(list)
    for each in found:
        times[replace(each, seconds=0)].append(each.seconds)
    return [replace(each, seconds=median(seconds)) for each, seconds in times.items()]


@contextmanager
def _cluster(workers: int) -> Iterator[Client]:
    with (
        Cluster(workers, 1, gpus=0, silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(workers)
        yield client


def _timed(client: Client, fused: bool, build: Callable[[int], Any], scale: int) -> float:
    with enable() if fused else disable():
        start = perf_counter()
        dask.compute(build(scale), scheduler=client)
        return perf_counter() - start


def costs(tasks: int = 1000, rounds: int = 3) -> Costs:
    """Return what was measured here, with the bandwidth and the network of the GPUs assumed.

    The scheduler's and the worker's seconds are those of their processes' CPU, the least of some
    rounds: on two cores they would wait for each other.
    """
    with _processes() as (client, scheduler, worker):
        found = []
        with disable():
            for number in range(1 + rounds):
                array = da.full(tasks * 100, float(number), chunks=100) * 2
                before = _cpu(scheduler), _cpu(worker)
                wait(array.persist())
                found.append((_cpu(scheduler) - before[0], _cpu(worker) - before[1]))
        trips = [_trip(client) for _ in range(200)]
    # The first round imports what tasks need.
    least = [min(each) / tasks for each in zip(*found[1:], strict=True)]
    return Costs(
        scheduler=least[0],
        worker=least[1],
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
