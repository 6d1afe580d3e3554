"""Programs that cannot fit are refused before any of their tasks starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

import gpusched
from gpusched import Cluster
from gpusched.cluster.fitting import room
from gpusched.graph.passes.fitting import DoesNotFitError, noting
from gpusched.workers.metrics import HEARTBEAT_KEY

LIMIT = 10_000_000
OWN = {
    # What this whole process takes says nothing of a worker in it.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}
SUM = 500_000_500_000.0
CALLS: list[int] = []


def counted(block: np.ndarray) -> np.ndarray:
    CALLS.append(block.size)
    return block


def program(chunks: int) -> Any:
    """Return an array whose first tasks are small, and of which one task takes two chunks."""
    x = da.arange(1_000_000, chunks=100_000, dtype="f8").map_blocks(counted, meta=np.empty(0))
    y = x.rechunk(chunks)
    return (y + 1).sum()


@contextmanager
def client_of(strict: bool) -> Iterator[Client]:
    settings = {
        **OWN,
        "gpusched.memory.strict": strict,
        "gpusched.fusion.minimum-elements": 1 << 40,
    }
    with (
        dask.config.set(settings),
        Cluster(1, 1, processes=False, worker_options={"memory_limit": LIMIT}) as cluster,
        Client(cluster) as found,
        gpusched.enable(),
    ):
        CALLS.clear()
        yield found


@pytest.fixture
def client() -> Iterator[Client]:
    with client_of(strict=True) as found:
        yield found


def test_program_that_cannot_fit_is_refused_before_it_starts(client: Client) -> None:
    with pytest.raises(DoesNotFitError) as refused:
        client.compute(program(1_000_000)).result()
    assert CALLS == []
    text = str(refused.value)
    assert "needs 22.89 MiB at once (7.63 MiB of inputs, and 15.26 MiB that it makes)" in text
    assert "a worker has 9.06 MiB for tasks" in text and "smaller chunks" in text


def test_program_that_fits_is_computed(client: Client) -> None:
    assert client.compute(program(200_000)).result() == SUM
    assert len(CALLS) == 10


def test_same_program_is_tried_where_nothing_is_to_be_refused() -> None:
    with client_of(strict=False) as client:
        assert client.compute(program(1_000_000)).result() == SUM


@pytest.mark.parametrize("fused", [True, False])
def test_tasks_are_checked_as_they_will_run(fused: bool) -> None:
    with dask.config.set({"optimization.fuse.active": fused}), gpusched.enable():
        with noting(room=LIMIT), pytest.raises(DoesNotFitError, match="cannot fit"):
            dask.optimize(program(1_000_000))
        with noting(room=3 * LIMIT):
            dask.optimize(program(1_000_000))


def test_smallest_worker_counts_and_a_gpu_none() -> None:
    def worker(limit: int, kind: str, own: int = 0) -> Any:
        return SimpleNamespace(
            memory_limit=limit,
            nanny=None,
            metrics={HEARTBEAT_KEY: {"device": {"kind": kind}, "memory": {"own_bytes": own}}},
        )

    def among(*workers: Any) -> int | None:
        scheduler: Any = SimpleNamespace(workers=dict(enumerate(workers)))
        return room(scheduler)

    assert among(worker(900, "cpu"), worker(500, "cpu"), worker(0, "cpu")) == 375
    assert among(worker(500, "cpu", 75)) == 300
    assert among(worker(9, "cpu"), worker(5, "cuda")) is None
    assert among() is None
