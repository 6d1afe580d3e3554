"""A cluster of two workers, each with a GPU of its own, emulated where the machine has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client

from gpusched import Cluster
from gpusched.cluster import statistics
from gpusched.fusion.statistics import Statistics
from tests.tiers import starts_processes


@pytest.fixture(scope="package")
@starts_processes
def client() -> Iterator[Client]:
    with Cluster(gpus="0,1", memory_limit=0) as cluster, Client(cluster) as client:
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
