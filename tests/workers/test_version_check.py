"""Versions that differ are named, and a worker with others is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import dask
import pytest
from distributed.versions import get_versions
from hypothesis import given
from hypothesis import strategies as st

from gpusched import Cluster
from gpusched.installing import DISTRIBUTION
from gpusched.workers import version_check
from gpusched.workers.version_check import HANDSHAKE_KEY, differences, of_handshake, own_versions


def test_own_versions_are_those_that_distributed_tells_too() -> None:
    assert of_handshake(get_versions(), {}).items() <= own_versions().items()


def test_what_a_gpusched_worker_tells_is_preferred() -> None:
    assert of_handshake(get_versions(), {HANDSHAKE_KEY: {"lz4": "1"}}) == {"lz4": "1"}


@given(st.dictionaries(st.sampled_from(["python", *version_check.PACKAGES]), st.none() | st.text()))
def test_only_what_both_sides_have_is_compared(theirs: dict[str, str | None]) -> None:
    mine = own_versions()
    found = differences(mine, theirs)
    assert len(found) == sum(bool(v) and mine[k] != v for k, v in theirs.items())
    assert differences(mine, mine) == []


async def join(told: dict[str, str], check: bool = True) -> None:
    """Start a cluster and a worker that claims to have other versions."""
    from gpusched.workers.worker import DeviceWorker

    class Other(DeviceWorker):
        async def get_startup_information(self) -> dict[str, Any]:
            found = await super().get_startup_information()
            return {**found, HANDSHAKE_KEY: {**own_versions(), **told}}

    async with (
        Cluster(0, 1, gpus=0, asynchronous=True) as cluster,
        Other(cluster.scheduler_address, nthreads=1, dashboard=False),
    ):
        pass


@pytest.mark.parametrize("package", ["python", DISTRIBUTION, "cloudpickle", "lz4", "dask"])
def test_worker_of_another_version_is_refused(package: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        asyncio.run(join({package: "0.0"}))
    told = str(caught.value.__cause__)
    assert f"{package} is {own_versions()[package]} here and 0.0 there" in told
    assert "Install the same versions on all machines" in told


def test_check_can_be_switched_off() -> None:
    with dask.config.set({"gpusched.worker.check-versions": False}):
        asyncio.run(join({DISTRIBUTION: "0.0"}))


def test_same_versions_are_taken() -> None:
    asyncio.run(join({}))
