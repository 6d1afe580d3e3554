"""A worker of little memory, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest
from distributed import Client

from gpusched import Cluster
from gpusched.workers.worker import DeviceWorker
from tests.workers.memory.small import OWN, PART


@pytest.fixture
def running() -> Iterator[tuple[Client, DeviceWorker]]:
    """Give a client of a worker in this process whose tasks may have 9.5 of `PART`."""
    with (
        dask.config.set(OWN),
        Cluster(1, 2, processes=False, worker_options={"memory_limit": 10 * PART}) as cluster,
        Client(cluster) as client,
    ):
        yield client, next(iter(cluster.workers.values()))
