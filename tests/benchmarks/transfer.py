"""Two workers that exchange arrays: ``python -m tests.benchmarks.transfer [--limit 1gbit]``.

One worker holds chunks, the other gets them all as the inputs of its tasks, over TCP on loopback,
with compression off, on and chosen by gpusched, in turn. With ``--limit`` the whole benchmark runs
in a network namespace of its own, whose loopback passes so many bits a second (needs root, and
``ip`` and ``tc`` of Debian's iproute2).
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import uuid
from statistics import median
from time import perf_counter

import dask
import numpy as np
from distributed import Client, Future, Scheduler, Worker, wait

from gpusched import Cluster
from tests.benchmarks import report
from tests.benchmarks.fields import KINDS, field
from tests.hosts.network import ip, program

MODES: dict[str, object] = {"off": False, "on": True, "auto": "auto"}
CHUNK = 16 << 20
_SETTING = "gpusched.serialization.compression"
# It would let the holder's copies go, of which the other worker has more.
_NO_MANAGER = {"distributed.scheduler.active-memory-manager.start": False}
_ORDER = random.Random(0)


def use(mode: str) -> None:
    """Set a worker's compression."""
    dask.config.set({_SETTING: MODES[mode]})


def touch(chunk: np.ndarray) -> int:
    """Need a chunk."""
    return chunk.nbytes


async def forget(keys: list[str], worker: str, dask_scheduler: Scheduler) -> None:
    """Have a worker let go what copies the scheduler knows that it has."""
    state = dask_scheduler.workers[worker]
    known = [key for key in keys if state in (dask_scheduler.tasks[key].who_has or ())]
    dask_scheduler.request_remove_replicas(worker, known, stimulus_id=f"bench-{uuid.uuid4()}")


def holds(keys: list[str], dask_worker: Worker) -> bool:
    """Return whether a worker has any of them."""
    return any(key in dask_worker.data for key in keys)


def move(client: Client, chunks: list[Future], to: str) -> float:
    """Return the seconds until all chunks have come to a worker; it forgets them afterwards."""
    begun = perf_counter()
    tasks = [client.submit(touch, chunk, workers=[to], pure=False) for chunk in chunks]
    wait(tasks)
    seconds = perf_counter() - begun
    assert all(task.status == "finished" for task in tasks)
    del tasks
    keys = [chunk.key for chunk in chunks]
    while client.run(holds, keys, workers=[to])[to]:
        client.run_on_scheduler(forget, keys, to)
    return seconds


def rows(client: Client, kinds: list[str], nbytes: int, repeat: int) -> None:
    """Print a line a kind: MB/s by mode, and how much faster the choice is than the others."""
    holder, getter = client.sync(client.scheduler.identity)["workers"]
    for kind in kinds:
        chunks = [
            client.submit(field, kind, CHUNK, seed, workers=[holder])
            for seed in range(nbytes // CHUNK)
        ]
        wait(chunks)
        times: dict[str, list[float]] = {mode: [] for mode in MODES}
        for turn in range(repeat + 1):
            for mode in _ORDER.sample(list(MODES), len(MODES)):
                client.run(use, mode)
                seconds = move(client, chunks, getter)
                # The first turn shows the worker how fast its link is.
                if turn:
                    times[mode].append(seconds)
        amount = sum(client.gather(client.map(touch, chunks, workers=[holder]))) / 1e6
        medians = {mode: median(seconds) for mode, seconds in times.items()}
        shown = " | ".join(f"{amount / medians[mode]:,.0f}" for mode in MODES)
        better = min(medians["off"], medians["on"]) / medians["auto"]
        print(
            f"| {kind} | {shown} | {medians['off'] / medians['auto']:.2f} | {better:.2f} |",
            flush=True,
        )
        del chunks


def _limited(rate: str, arguments: list[str]) -> int:
    """Run this again where loopback is that slow."""
    name = f"gpusched-bench-{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        tbf = ["tbf", "rate", rate, "burst", "1mb", "latency", "50ms"]
        command = ["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", *tbf]
        subprocess.run(command, check=True, env={**os.environ, "PATH": "/usr/sbin:/sbin:/bin"})
        again = [sys.executable, "-m", "tests.benchmarks.transfer", *arguments]
        return subprocess.run([program(), "netns", "exec", name, *again], check=False).returncode
    finally:
        ip("netns", "delete", name)


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tests.benchmarks.transfer")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="MiB of each kind")
    parser.add_argument("--kind", action="append", help="by default all")
    parser.add_argument("--limit", help="bits a second, as tc writes them: 1gbit")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.limit:
        rest = [word for word in arguments if word not in ("--limit", options.limit)]
        return _limited(options.limit, [*rest, "--within", options.limit])
    print(report.header("tests.benchmarks.transfer", arguments))
    speed = options.within or "full speed"
    print(f"\n{options.size} MiB from worker to worker over loopback at {speed}\n")
    print("| | off, MB/s | on, MB/s | auto, MB/s | auto to off | auto to the better |")
    print("| --- " * 6 + "|")
    kinds = options.kind or list(KINDS)
    with (
        dask.config.set(_NO_MANAGER),
        Cluster(2, 1, gpus=0, fuse=False, memory_limit="6 GiB") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        rows(client, kinds, options.size << 20, options.repeat)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
