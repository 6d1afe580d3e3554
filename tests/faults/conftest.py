"""Clusters of real processes to do harm to, and what is left of them afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client

from gpusched import Cluster
from tests.tiers import starts_processes
from tests.waiting import is_tracker, wait_gone

# Found out quickly that a worker is gone, so that the tests are quick.
SETTINGS = {
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.retry.count": 0,
    "distributed.scheduler.allowed-failures": 50,
    "distributed.worker.memory.terminate": False,
}


class Harmed:
    """A cluster, its client, and ways to do harm."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    def pids(self) -> dict[Any, int]:
        """Return the workers' process ids by name."""
        info = self.client.sync(self.client.scheduler.identity)["workers"]
        pids = self.client.run(os.getpid, on_error="ignore")
        return {info[a]["name"]: pid for a, pid in pids.items() if a in info}

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(pid, number)


@pytest.fixture
@starts_processes
def start(tmp_path: Path) -> Iterator[Callable[..., Harmed]]:
    """Give a function that starts a cluster; afterwards no process of it may live."""
    opened: list[Any] = []
    before = set(psutil.Process().children(recursive=True))

    def starting(workers: int = 2, settings: dict[str, Any] | None = None, **kwargs: Any) -> Harmed:
        changed = dask.config.set({**SETTINGS, **(settings or {})})
        opened.append(changed)
        scratch = tmp_path / "scratch"
        options = {"local_directory": str(scratch), **kwargs.pop("worker_options", {})}
        cluster = Cluster(workers, 1, gpus=0, worker_options=options, **kwargs)
        opened.append(cluster)
        client = Client(cluster)
        opened.append(client)
        return Harmed(cluster, client)

    yield starting
    for thing in reversed(opened):
        thing.__exit__(None, None, None)
    started = set(psutil.Process().children(recursive=True)) - before
    wait_gone(p for p in started if not is_tracker(p))
