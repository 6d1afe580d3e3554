"""``gpusched.local()``: everything in this process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import dask
import dask.array as da
import psutil
import pytest
from distributed import default_client

import gpusched
from gpusched.cluster.statistics import difference, gather
from gpusched.store.statistics import Committed, Statistics


def test_is_the_default_client_within_the_block() -> None:
    with gpusched.local() as client:
        assert default_client() is client
        assert float(da.ones(10, chunks=5).sum().compute()) == 10
    with pytest.raises(ValueError, match="No clients"):
        default_client()


def test_opens_no_socket_and_starts_no_process() -> None:
    me = psutil.Process()
    before = set(me.children()), sockets(me)
    with gpusched.local() as client:
        assert client.scheduler.address.startswith("inproc://")
        # Those of tests before this one may end meanwhile.
        assert set(me.children()) <= before[0]
        assert sockets(me) <= before[1]


def sockets(process: psutil.Process) -> set[tuple[int, Any]]:
    """Return a process's sockets."""
    return {(each.fd, each.laddr) for each in process.net_connections("inet")}


def test_fusion_is_on_within_the_block() -> None:
    before = gpusched.statistics()
    hook = dask.config.get("array_optimize", None)
    x = da.ones(100_000, chunks=50_000)
    with gpusched.local():
        assert float(((x + 1) * 2).sum().compute()) == 400_000
    assert gpusched.statistics().fused_tasks - before.fused_tasks == 2
    assert dask.config.get("array_optimize", None) is hook
    with gpusched.local(fuse=False):
        assert float(((x + 1) * 2).sum().compute()) == 400_000
    assert gpusched.statistics().fused_tasks - before.fused_tasks == 2


def test_closes_when_the_block_raises() -> None:
    with pytest.raises(RuntimeError, match="told"), gpusched.local() as client:
        raise RuntimeError("told")
    assert client.status == "closed"


UNCLOSED = """
import dask.array as da, gpusched
cluster = gpusched.Cluster(1, 1, processes=False, dashboard_address=None)
client = cluster.get_client()
print(float(da.ones(10, chunks=5).sum().compute()))
"""


@pytest.mark.processes
def test_ends_quietly_with_a_program_that_does_not_close_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "10.0\n"
    assert "Error" not in done.stderr


def test_threads() -> None:
    with gpusched.local(3, memory_limit="1 GiB") as client:
        (worker,) = client.sync(client.scheduler.identity)["workers"].values()
        assert (worker["nthreads"], worker["memory_limit"]) == (3, 2**30)


def test_shared_process_is_counted_once() -> None:
    with gpusched.local() as client:
        before = gather(client)
        x = da.ones(100_000, chunks=50_000)
        float(((x + 1) * 2).sum().compute())
        counted = difference(gather(client), before)
    assert len(before) == 1
    assert counted.fused_tasks == 2
    assert sum(counted.kernels.values()) == counted.launches == 2


def test_difference_counts_new_processes_fully_and_lost_ones_not_at_all() -> None:
    before = {("host", 1): Statistics(tasks=1), ("host", 2): Statistics(tasks=5)}
    after = {("host", 1): Statistics(tasks=3), ("host", 3): Statistics(tasks=10)}
    assert difference(after, before).tasks == 12


def test_fullest_memory_is_told_of_the_time_between() -> None:
    full, fuller = Committed(100, held=60), Committed(100, held=40, reserved=30)
    before = {("host", 1): Statistics(memory_fullest=full)}
    after = {("host", 2): Statistics(memory_fullest=Committed(200, held=80))}
    found = difference(after | before, before)
    assert found.memory_fullest == Committed(200, held=80)
    found = difference(after | {("host", 1): Statistics(memory_fullest=fuller)}, before)
    assert found.memory_fullest == fuller
