"""What workers report of their devices in heartbeats: memory by tier, utilisation, and spilling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dask.utils import natural_sort_key

from gpusched.workers.metrics import HEARTBEAT_KEY

TIERS = {
    "device": "GPU: arrays",
    "pool": "GPU: free in the pool",
    "results": "host: results",
    "buffers": "host: free chunk buffers",
    "other": "host: everything else",
    "disk": "disk: spilled results",
}
"""Where a worker's memory is, from top to bottom, and how that is called."""


@dataclass(frozen=True)
class Device:
    """A worker's device: a GPU, or the host's cores."""

    label: str
    """The worker's name and the device's."""
    uuid: str
    """Of the GPU; of a host's cores what distinguishes hosts."""
    name: str
    """The product's."""
    kind: str
    """``"cuda"`` or ``"cpu"``."""
    parts: dict[str, int]
    """Bytes by the keys of `TIERS`."""
    limit: int
    """Bytes that the worker may take on the GPU and on the host together; 0 for no limit."""
    utilization: float | None
    """Per cent: of the time in which a kernel ran on the GPU, or of the worker's threads."""
    written: int
    """Bytes written to disk so far, as results were spilled."""
    read: int
    """Bytes read back."""
    lost: int
    """Results that were found damaged or gone, and computed again."""
    between: int = 0
    """Bytes that other GPUs have copied from this one's memory."""
    through_host: int = 0
    """Bytes of its memory that were sent through the host."""


@dataclass(frozen=True)
class Spilled:
    """What was spilled from one device, by all its workers."""

    uuid: str
    host: int
    """Bytes that were moved to host memory, and are there."""
    disk: int
    """Bytes that are on disk."""
    written: int
    read: int
    lost: int


def devices(workers: Iterable[Any]) -> list[Device]:
    """Return the devices of a scheduler's workers, by the workers' names.

    Parameters
    ----------
    workers
        States of workers, such as ``scheduler.workers.values()``. Those of dask's own that report
        nothing of a device have the host's.
    """
    return [_device(ws) for ws in sorted(workers, key=lambda ws: natural_sort_key(str(ws.name)))]


def _device(ws: Any) -> Device:
    told = ws.metrics.get(HEARTBEAT_KEY, {})
    device, spill, kernels = (told.get(section, {}) for section in ("device", "spill", "kernels"))
    on_gpu = device.get("kind") == "cuda"
    uuid = device.get("uuid") or f"CPU of {ws.host}"
    return Device(
        label=f"{str(ws.name).rpartition('/')[2]}  {short(uuid) if on_gpu else 'CPU'}",
        uuid=uuid,
        name=device.get("name", "host"),
        kind="cuda" if on_gpu else "cpu",
        parts=_tiers(ws, device, spill, on_gpu),
        limit=(ws.memory_limit or 0) + device.get("memory_limit", 0),
        utilization=device.get("utilization") if on_gpu else _load(ws),
        written=spill.get("written_bytes", 0),
        read=spill.get("read_bytes", 0),
        lost=spill.get("lost", 0),
        between=kernels.get("between_devices_bytes", 0),
        through_host=kernels.get("through_host_bytes", 0),
    )


def _tiers(ws: Any, device: dict[str, Any], spill: dict[str, Any], on_gpu: bool) -> dict[str, int]:
    memory = ws.memory
    held, used = device.get("pool_held", 0), device.get("memory_used", 0)
    # On a GPU's worker the pool is the GPU's, and what distributed takes for results in memory may
    # lie on either side.
    results = spill.get("device_bytes", 0) if on_gpu else memory.managed
    results = min(results, memory.process)
    buffers = 0 if on_gpu else min(held, memory.process - results)
    return {
        "device": used if on_gpu else 0,
        "pool": max(0, held - used) if on_gpu else 0,
        "results": results,
        "buffers": buffers,
        "other": memory.process - results - buffers,
        "disk": spill.get("disk_bytes", memory.spilled),
    }


def _load(ws: Any) -> float | None:
    """Return how much of its threads a worker uses, in per cent; its process may have others."""
    used = ws.metrics.get("cpu")
    return None if used is None else min(100.0, used / max(1, ws.nthreads))


def short(uuid: str) -> str:
    """Return a GPU's UUID as far as people distinguish GPUs by it.

    Examples
    --------
    >>> from gpusched.dashboard.device_reports import short
    >>> short("GPU-1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901")
    'GPU-1b2c3d4e'
    """
    return "-".join(uuid.split("-")[:2])


def spilled(found: Iterable[Device]) -> list[Spilled]:
    """Return what was spilled, by device: several workers may share one."""
    by_uuid: defaultdict[str, list[Device]] = defaultdict(list)
    for device in found:
        by_uuid[device.uuid].append(device)
    return [
        Spilled(
            uuid,
            sum(each.parts["results"] for each in those if each.kind == "cuda"),
            sum(each.parts["disk"] for each in those),
            sum(each.written for each in those),
            sum(each.read for each in those),
            sum(each.lost for each in those),
        )
        for uuid, those in by_uuid.items()
    ]
