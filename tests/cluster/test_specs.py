"""What workers of an allocation are started with."""

from __future__ import annotations

import pytest

from gpusched import graph
from gpusched.cluster.allocation import Allocation, Slot, sharing
from gpusched.cluster.specs import worker_options

GPUS = Allocation(
    2,
    1,
    2**30,
    (
        Slot("3", "GPU-aa", 1, 80, (0, 1)),
        Slot("GPU-bb", "GPU-bb", 1, 40, (2, 3)),
    ),
)
CPUS = Allocation(2, 3, 2**30, (Slot(),))


def test_gpu_worker_gets_its_slot() -> None:
    assert worker_options(GPUS, 1, pool="async", pool_size="1 GiB") == {
        "nthreads": 1,
        "memory_limit": 2**30,
        "env": {"CUDA_VISIBLE_DEVICES": "GPU-bb", **sharing()},
        "cpus": (2, 3),
        "gpu": True,
        "device_uuid": "GPU-bb",
        "device_memory_limit": 40,
        "pool": "async",
        "pool_size": 2**30,
        "resources": {"GPU": 1.0},
    }


def test_cpu_worker_gets_nothing_of_a_gpu() -> None:
    assert worker_options(CPUS, 1, pool="async", pool_size="1 GiB") == {
        "nthreads": 3,
        "memory_limit": 2**30,
        "env": {"CUDA_VISIBLE_DEVICES": ""},
        "cpus": (),
    }


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, {"GPU": 1.0}),
        ({"MEM": 2.0}, {"GPU": 1.0, "MEM": 2.0}),
        ({"GPU": 2.0}, {"GPU": 2.0}),
    ],
)
def test_resources_are_merged(given: dict[str, float], found: dict[str, float]) -> None:
    assert worker_options(GPUS, 0, resources=given)["resources"] == found
    assert worker_options(CPUS, 0, resources=given)["resources"] == given


def test_what_is_given_wins() -> None:
    options = worker_options(CPUS, 0, nthreads=7, env={"MINE": "1"}, name="a")
    assert (options["nthreads"], options["name"]) == (7, "a")
    assert options["env"] == {"CUDA_VISIBLE_DEVICES": "", "MINE": "1"}


@pytest.mark.parametrize(("fuse", "fused"), [(True, True), (None, True), (False, False)])
def test_fusion_is_a_setting_of_the_worker(fuse: bool | None, fused: bool) -> None:
    options = worker_options(CPUS, 0, fuse=fuse, config={"mine": 1})
    expected = {"array_optimize": graph.optimize, "mine": 1} if fused else {"mine": 1}
    assert options["config"] == expected


@pytest.mark.parametrize(("pool", "size"), [("odd", None), ("cupy", "much"), ("none", "1 GiB")])
def test_pool_that_cannot_be_is_named(pool: str, size: str | None) -> None:
    with pytest.raises(ValueError, match="--pool"):
        worker_options(GPUS, 0, pool=pool, pool_size=size)
