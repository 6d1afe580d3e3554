"""What gpusched's workers cost beside distributed's own: `python -m tests.benchmarks.cluster`.

Every figure is measured for both in turn, in one process, and printed as medians and their ratio.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import dask
import numpy as np
from distributed import Client, LocalCluster
from distributed.spill import SpillBuffer

from gpusched import Cluster
from gpusched.workers.device import HostDevice
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.memory.store import Store
from tests.benchmarks import report

T = TypeVar("T")
_ORDER = random.Random(0)
QUIET = {"distributed.logging.distributed": "critical", "logging.distributed": "critical"}


def ours(workers: int) -> Any:
    """Start gpusched's cluster."""
    return Cluster(workers, 1, gpus=0, fuse=False, memory_limit="1 GiB", silence_logs=50)


def theirs(workers: int) -> Any:
    """Start distributed's."""
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        memory_limit="1 GiB",
        dashboard_address=None,
        silence_logs=50,
        worker_dashboard_address=None,
    )


CLUSTERS: dict[str, Callable[[int], Any]] = {"gpusched": ours, "distributed": theirs}


def shuffled(contenders: dict[str, T]) -> list[tuple[str, T]]:
    """Return the contenders in an order that is another each time."""
    return _ORDER.sample(list(contenders.items()), len(contenders))


def increment(x: int) -> int:
    return x + 1


def throughput(client: Client, tasks: int) -> float:
    """Return the seconds that so many tasks without work take."""
    start = perf_counter()
    client.gather(client.map(increment, range(tasks), pure=False))
    return perf_counter() - start


def life(start: Callable[[int], Any], workers: int) -> tuple[float, float]:
    """Return the seconds until all workers are there, and those that closing takes."""
    begun = perf_counter()
    cluster = start(workers)
    client = Client(cluster)
    client.wait_for_workers(workers)
    up = perf_counter()
    client.close()
    cluster.close()
    return up - begun, perf_counter() - up


def recovery(client: Client) -> float:
    """Return the seconds from the death of the only worker to the end of the next task."""
    (pid,) = client.run(os.getpid).values()
    begun = perf_counter()
    os.kill(pid, signal.SIGKILL)
    client.submit(increment, 1, pure=False).result()
    while pid in client.run(os.getpid, on_error="ignore").values():
        client.submit(increment, 1, pure=False).result()
    return perf_counter() - begun


def spill_and_unspill(
    mapping: Any, values: list[np.ndarray], spilled: Callable[[], object] = lambda: None
) -> tuple[float, float]:
    """Return the seconds of moving values to disk, and of reading them all.

    Between the two, `spilled` is called.
    """
    # Copies that nobody else holds, which could be found in memory again.
    copies = [value.copy() for value in values]
    begun = perf_counter()
    for key in range(len(values)):
        mapping[key] = copies.pop()
    if isinstance(mapping, Store):
        mapping.make_room(host_bytes=math.inf).result()
    else:
        while mapping.fast:
            mapping.evict()
    written = perf_counter() - begun
    spilled()
    begun = perf_counter()
    for key in range(len(values)):
        assert mapping[key].nbytes
    return written, perf_counter() - begun


def stores(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return what makes each store; both keep in memory what they have read."""
    return {
        "gpusched": lambda: Store(HostDevice(), SpillFiles(folder / "ours")),
        "distributed": lambda: SpillBuffer(str(folder / "theirs"), target=sys.maxsize),
    }


def data(kind: str, count: int) -> list[np.ndarray]:
    """Return arrays of 8 MB: incompressible, or a smooth field."""
    rng = np.random.default_rng(0)
    if kind == "noise":
        return [rng.random(1_000_000) for _ in range(count)]
    x = np.linspace(0, 20, 1_000_000)
    return [np.round(np.sin(x + k), 3) for k in range(count)]


def rows(repeat: int, tasks: int, workers: int, count: int) -> list[str]:
    """Return the lines of the table."""
    found = [
        _clusters(f"{tasks:,} tasks without work, 2 workers", repeat, tasks),
        *_lives(repeat, workers),
        _recoveries(repeat),
    ]
    for kind in ("noise", "smooth"):
        # In memory there is no other tenant whose writing is waited for.
        for disk in (None, "/dev/shm"):
            found += _spills(repeat, kind, data(kind, count), disk)
    return found


def _clusters(what: str, repeat: int, tasks: int) -> str:
    times: dict[str, list[float]] = {name: [] for name in CLUSTERS}
    opened = {name: start(2) for name, start in CLUSTERS.items()}
    clients = {name: Client(cluster, set_as_default=False) for name, cluster in opened.items()}
    for client in clients.values():
        client.wait_for_workers(2)
        throughput(client, tasks // 10)
    for _ in range(repeat):
        for name, client in shuffled(clients):
            times[name].append(throughput(client, tasks))
    for thing in (*clients.values(), *opened.values()):
        thing.close()
    return _row(what, times, "s")


def _lives(repeat: int, workers: int) -> list[str]:
    starts: dict[str, list[float]] = {name: [] for name in CLUSTERS}
    ends: dict[str, list[float]] = {name: [] for name in CLUSTERS}
    for _ in range(repeat):
        for name, start in shuffled(CLUSTERS):
            up, down = life(start, workers)
            starts[name].append(up)
            ends[name].append(down)
    return [_row(f"start of {workers} workers", starts, "s"), _row("close", ends, "s")]


def _recoveries(repeat: int) -> str:
    times: dict[str, list[float]] = {name: [] for name in CLUSTERS}
    for name, start in CLUSTERS.items():
        with start(1) as cluster, Client(cluster) as client:
            client.wait_for_workers(1)
            times[name] = [recovery(client) for _ in range(repeat)]
    return _row("from SIGKILL of the only worker to the next result", times, "s")


def _spills(repeat: int, kind: str, values: list[np.ndarray], disk: str | None = None) -> list[str]:
    down: dict[str, list[float]] = {}
    up: dict[str, list[float]] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=disk) as folder:
            # Whoever comes second finds memory that the first has let go.
            for name, make in shuffled(stores(Path(folder))):
                store = make()
                seconds = spill_and_unspill(store, values)
                down.setdefault(name, []).append(seconds[0])
                up.setdefault(name, []).append(seconds[1])
                store.close()
    nbytes, where = sum(value.nbytes for value in values), disk or tempfile.gettempdir()
    return [
        _row(f"spill {kind} to {where}, {nbytes / 1e6:.0f} MB", down, "MB/s", nbytes / 1e6),
        _row(f"unspill {kind} from {where}", up, "MB/s", nbytes / 1e6),
    ]


def _row(what: str, times: dict[str, list[float]], unit: str, amount: float = 0) -> str:
    medians = {name: median(seconds) for name, seconds in times.items()}
    shown = [
        f"{amount / medians[name]:,.0f} {unit}" if amount else f"{medians[name]:.2f} {unit}"
        for name in CLUSTERS
    ]
    ratio = medians["distributed"] / medians["gpusched"]
    return f"| {what} | {shown[0]} | {shown[1]} | {ratio:.2f} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each figure")
    parser.add_argument("--tasks", type=int, default=5_000, help="tasks of the throughput figure")
    parser.add_argument("--workers", type=int, default=4, help="workers of the start-up figure")
    parser.add_argument("--arrays", type=int, default=50, help="arrays of 8 MB that are spilled")
    given = parser.parse_args(arguments)
    with dask.config.set(QUIET):
        lines = rows(given.repeat, given.tasks, given.workers, given.arrays)
    print(report.header("tests.benchmarks.cluster", arguments))
    print("| what | gpusched | distributed | times faster |\n| --- | --- | --- | --- |")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
