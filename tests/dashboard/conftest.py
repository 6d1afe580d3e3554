"""A cluster of one worker process with a dashboard, and a program to run on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.array as da
import pytest
from distributed import Client

import gpusched


def program() -> Any:
    """Return arrays whose tasks launch two kernels, one of them with a reduction, and stop once."""
    x = da.random.default_rng(0).random((400, 400), chunks=(100, 400))
    return [((x - 0.5) ** 2 / (x + 1)).mean(), (da.sqrt(x) + x * 2).sum(axis=1), da.unique(x > 2)]


class Site:
    """A cluster, its client, and where its dashboard is."""

    def __init__(self, cluster: gpusched.Cluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.url = cluster.dashboard_link.rpartition("/")[0]

    @property
    def scheduler(self) -> Any:
        return self.cluster.scheduler

    def compute(self) -> None:
        """Run the program once."""
        self.client.compute(program(), sync=True)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Run the program again and again while the block runs."""
        stop = threading.Event()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                while not stop.is_set():
                    self.compute()
            except BaseException as error:  # Told to the test, in its own thread.
                failed.append(error)

        thread = threading.Thread(target=work, name="job")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not failed, failed


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Start a cluster on which the program has run once."""
    with (
        gpusched.Cluster(1, 1, gpus=0, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        found = Site(cluster, client)
        found.compute()
        yield found
