"""Arrays between two worker processes over TCP, with plain distributed and with gpusched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from gpusched import Cluster
from gpusched.serialization.arrays.device import WithoutGpuError
from gpusched.serialization.frames import CorruptFrameError
from tests.tiers import starts_processes
from tests.waiting import PATIENCE

BIG = 9_000_000
"""Items, of 8 bytes each: more than distributed sends in one frame."""


@pytest.fixture(scope="module", params=["gpusched", "plain"])
@starts_processes
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    options: dict[str, Any] = {"dashboard_address": None, "threads_per_worker": 1}
    with dask.config.set({"distributed.worker.preload": ["gpusched.serialization"]}):
        started = (
            Cluster(2, **options, gpus=0)
            if request.param == "gpusched"
            else LocalCluster(2, **options, processes=True)
        )
        with started as cluster, Client(cluster) as client:
            yield client


def make(kind: str) -> Any:
    """Return a value, in whichever process this is called."""
    if kind == "torch":
        import torch

        return torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t()
    if kind == "expanded":
        import torch

        return torch.arange(3.0).expand(1000, 3)
    if kind == "jax":
        import jax

        return jax.numpy.arange(6, dtype="bfloat16").reshape(2, 3)
    return {
        "view": np.arange(24.0).reshape(4, 6)[::-2, ::3],
        "fortran": np.asfortranarray(np.arange(6, dtype=">f2").reshape(2, 3)),
        "broadcast": np.broadcast_to(np.arange(3), (1000, 3)),
        "empty": np.zeros((0, 3)),
        "scalar": np.array(3 + 4j),
        "dates": np.array(["2026-01-01", "NaT"], "M8[D]"),
        "masked": np.ma.MaskedArray([1, 2], [True, False]),
        "objects": np.array(["a", None], dtype=object),
        "big": np.arange(BIG),
        "nested": {"a": [np.arange(3), "text"]},
    }[kind]


def describe(value: Any) -> Any:
    """Return what must be the same everywhere."""
    if isinstance(value, dict | list):
        return repr(value)
    strides = value.stride() if hasattr(value, "stride") else getattr(value, "strides", ())
    # Gaps are left out on the way.
    order = np.argsort(np.abs(strides)).tolist(), np.sign(strides).tolist()
    return str(type(value)), str(value.dtype), tuple(value.shape), order, str(value)


KINDS = ["view", "fortran", "broadcast", "empty", "scalar", "dates", "masked", "objects", "big",
         "nested"]  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, "torch", "expanded", "jax"])
def test_arrays_pass_between_workers_and_to_the_client(client: Client, kind: str) -> None:
    if kind not in KINDS:
        library = "jax" if kind == "jax" else "torch"
        pytest.importorskip(library, reason=f"{library} is not installed")
    first, second = client.sync(client.scheduler.identity)["workers"]
    made = client.submit(make, kind, workers=[first], pure=False)
    there = client.submit(describe, made, workers=[second], pure=False).result(PATIENCE)
    assert there == client.submit(describe, made, workers=[first], pure=False).result(PATIENCE)
    assert describe(made.result(PATIENCE)) == there


def test_scattered_arrays_arrive(client: Client) -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    scattered = client.scatter(array)
    assert client.submit(describe, scattered, pure=False).result(PATIENCE) == describe(array)


def test_compressed_arrays_arrive(client: Client) -> None:
    def compress() -> None:
        dask.config.set({"gpusched.serialization.compression": True})

    client.run(compress)
    first, second = client.sync(client.scheduler.identity)["workers"]
    made = client.submit(make, "big", workers=[first], pure=False)
    total = client.submit(np.sum, made, workers=[second], pure=False).result(PATIENCE)
    assert total == BIG * (BIG - 1) // 2


class Claimed:
    """Says of itself, when it is sent, that it is a tensor on a GPU."""


def claim() -> Claimed:
    from distributed.protocol.serialize import dask_serialize

    from gpusched.serialization.arrays import messages

    def serialize(value: Any) -> Any:
        return messages.pack("cupy", np.arange(3.0), None)

    dask_serialize.register(Claimed, serialize)
    return Claimed()


def test_a_gpu_array_on_a_worker_without_a_gpu_is_an_error_of_its_tasks(client: Client) -> None:
    if not isinstance(client.cluster, Cluster):
        pytest.skip("distributed's own workers wait for ever: dask/distributed#6705")
    first, second = client.sync(client.scheduler.identity)["workers"]
    made = client.submit(claim, workers=[first], pure=False)
    fine = client.submit(make, "scalar", workers=[first], pure=False)
    for _ in range(2):
        failed = client.submit(lambda *given: given, made, fine, workers=[second], pure=False)
        with pytest.raises(WithoutGpuError, match=r"cupy.ndarray has arrived where CuPy"):
            failed.result(PATIENCE)
    # What could not be read is not offered to others, and what arrived with it is not lost.
    assert client.submit(str, fine, workers=[second], pure=False).result(PATIENCE) == "(3+4j)"
    assert client.submit(type, made, workers=[first], pure=False).result(PATIENCE) is Claimed
    assert set(client.who_has(made)[made.key]) == {first}


class Damaged:
    """Arrives with another byte than was sent."""


def damage() -> Damaged:
    from distributed.protocol.serialize import dask_serialize

    from gpusched.serialization.arrays import messages

    def serialize(value: Any) -> Any:
        array = np.arange(3)
        header, frames = messages.pack("numpy", array, None)
        array[1] = 7
        return header, frames

    dask_serialize.register(Damaged, serialize)
    return Damaged()


def test_damage_on_the_way_is_an_error_of_tasks_and_clients(client: Client) -> None:
    first, second = client.sync(client.scheduler.identity)["workers"]
    made = client.submit(damage, workers=[first], pure=False)
    with pytest.raises(CorruptFrameError, match="checksum"):
        made.result(PATIENCE)
    if isinstance(client.cluster, Cluster):
        with pytest.raises(CorruptFrameError, match="checksum"):
            client.submit(type, made, workers=[second], pure=False).result(PATIENCE)


def test_a_client_without_a_gpu_is_told_so(client: Client) -> None:
    made = client.submit(claim, pure=False)
    with pytest.raises(WithoutGpuError, match=r"cupy.ndarray has arrived where CuPy"):
        made.result(PATIENCE)
    with dask.config.set({"gpusched.serialization.without-gpu": "host"}):
        assert made.result(PATIENCE).tolist() == [0, 1, 2]
