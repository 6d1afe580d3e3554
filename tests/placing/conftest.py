"""A cluster of two workers on GPUs: each has one of its own where there are two, or is emulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client

from gpusched import Cluster
from gpusched.cluster import statistics
from gpusched.store.statistics import Statistics
from gpusched.workers.visible_gpus import visible_devices
from tests import emulated_gpu
from tests.tiers import starts_processes


@pytest.fixture(scope="package")
@starts_processes
def client() -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        if emulated_gpu.active:
            patch.setenv(emulated_gpu.SWITCH, "devices=2")
        gpus = "0,1" if len(visible_devices()) > 1 else "0,0"
        with Cluster(gpus=gpus, memory_limit=0) as cluster, Client(cluster) as client:
            yield client


Counted = Callable[[Callable[[], Any]], tuple[Any, Statistics]]


@pytest.fixture
def counted(client: Client) -> Counted:
    """Return what calls a function, and returns what it did with what the workers counted."""

    def call(function: Callable[[], Any]) -> tuple[Any, Statistics]:
        before = statistics.gather(client)
        found = function()
        return found, statistics.difference(statistics.gather(client), before)

    return call
