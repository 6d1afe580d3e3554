"""Memory by tier, utilisation and spilling, from what workers report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpusched.dashboard.device_reports import devices, spilled

UUID = "GPU-1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901"


def worker(name: Any, told: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return what a scheduler knows of a worker with 1000 bytes in its process."""
    memory = SimpleNamespace(process=1000, managed=300, spilled=50)
    metrics = {"cpu": 150.0, **({} if told is None else {"gpusched": told})}
    return SimpleNamespace(
        **{"name": name, "host": "10.0.0.1", "nthreads": 2, "memory_limit": 4000,
           "memory": memory, "metrics": metrics, **more}
    )  # fmt: skip


def gpu(uuid: str = UUID, **spill: int) -> dict[str, Any]:
    device = {"uuid": uuid, "name": "H200", "kind": "cuda", "memory_used": 600, "pool_held": 700,
              "memory_limit": 9000, "utilization": 40}  # fmt: skip
    return {"device": device, "spill": {"device_bytes": 0, "disk_bytes": 0, **spill}}


def test_worker_of_dask_has_the_host() -> None:
    (found,) = devices([worker("tcp://10.0.0.1:4711")])
    assert found.label == "10.0.0.1:4711  CPU" and found.kind == "cpu"
    tiers = {"device": 0, "pool": 0, "results": 300, "buffers": 0, "other": 700, "disk": 50}
    assert found.parts == tiers
    assert (found.limit, found.utilization) == (4000, 75.0)


def test_cpu_worker_has_chunk_buffers() -> None:
    told = {"device": {"kind": "cpu", "uuid": "", "name": "host", "memory_used": 0,
                       "memory_limit": 0, "pool_held": 200},
            "spill": {"device_bytes": 0, "disk_bytes": 70}}  # fmt: skip
    (found,) = devices([worker(0, told)])
    assert found.parts["buffers"] == 200 and found.parts["other"] == 500
    assert found.parts["disk"] == 70 and found.uuid == "CPU of 10.0.0.1"


def test_gpu_worker_has_tiers_on_both_sides() -> None:
    (found,) = devices([worker(0, gpu(device_bytes=250, disk_bytes=80))])
    tiers = {"device": 600, "pool": 100, "results": 250, "buffers": 0, "other": 750, "disk": 80}
    assert found.parts == tiers
    assert (found.label, found.limit, found.utilization) == ("0  GPU-1b2c3d4e", 13000, 40)


def test_utilization_is_unknown_until_told() -> None:
    told = gpu()
    del told["device"]["utilization"]
    assert devices([worker(0, told)])[0].utilization is None
    assert devices([worker(0, metrics={})])[0].utilization is None


def test_tiers_never_get_negative() -> None:
    """What the scheduler takes for results may be more than the process has by now."""
    memory = SimpleNamespace(process=100, managed=300, spilled=0)
    (found,) = devices([worker(0, memory=memory)])
    assert all(nbytes >= 0 for nbytes in found.parts.values())
    assert sum(found.parts.values()) == 100


def test_workers_of_one_gpu_spill_together() -> None:
    found = devices(
        [
            worker(10, gpu(device_bytes=1, disk_bytes=2, written_bytes=3, read_bytes=4, lost=5)),
            worker(9, gpu(device_bytes=10, disk_bytes=20, written_bytes=30, read_bytes=40)),
            worker(8, gpu("GPU-other", disk_bytes=7)),
        ]
    )
    assert [each.label.split()[0] for each in found] == ["8", "9", "10"]
    other, shared = spilled(found)
    assert (other.uuid, other.disk) == ("GPU-other", 7)
    assert (shared.uuid, shared.host, shared.disk) == (UUID, 11, 22)
    assert (shared.written, shared.read, shared.lost) == (33, 44, 5)
