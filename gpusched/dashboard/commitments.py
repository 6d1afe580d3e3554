"""What workers report of the memory that is taken, and of the tasks that wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dask.utils import natural_sort_key

from gpusched.workers.metrics import HEARTBEAT_KEY

PARTS = {
    "unmanaged": "unmanaged",
    "held": "results",
    "in_flight": "results being received",
    "reserved": "reserved for running tasks",
}
"""What takes a worker's memory, from the first bar to the last, and how that is called."""

NOT_ADMITTED = "tasks start at once: gpusched.memory.admission is off"


@dataclass(frozen=True)
class Commitments:
    """What a worker has committed of the memory that its tasks take."""

    label: str
    """The worker's name."""
    parts: dict[str, int]
    """Bytes by the keys of `PARTS`."""
    limit: int
    """Bytes within which tasks are started; 0 for no limit."""
    spilled: int
    """Bytes of results that are on disk."""
    waiting: int
    """Tasks that wait for memory now."""
    reason: str
    """What the first of them waits for; empty if none waits."""
    waited: int
    """Tasks that had to wait so far."""
    wait_seconds: float
    """How long they waited, together."""
    in_pieces: int
    """Tasks that were started on parts of their chunks so far."""
    refused: int
    """Tasks that were refused so far."""


def commitments(workers: Iterable[Any]) -> list[Commitments]:
    """Return what a scheduler's workers have committed, by the workers' names."""
    return [_of(ws) for ws in sorted(workers, key=lambda ws: natural_sort_key(str(ws.name)))]


def _of(ws: Any) -> Commitments:
    told = ws.metrics.get(HEARTBEAT_KEY, {})
    memory = told.get("memory", {})
    return Commitments(
        label=str(ws.name).rpartition("/")[2],
        parts=_parts(memory) if memory else _parts_unplanned(ws),
        limit=memory.get("limit_bytes", 0) if memory else ws.memory_limit or 0,
        spilled=told.get("spill", {}).get("disk_bytes", ws.memory.spilled),
        waiting=memory.get("waiting", 0),
        reason=memory.get("reason", "") if memory else NOT_ADMITTED,
        waited=memory.get("waited", 0),
        wait_seconds=memory.get("wait_seconds", 0.0),
        in_pieces=memory.get("in_pieces", 0),
        refused=memory.get("refused", 0),
    )


def _parts(memory: dict[str, Any]) -> dict[str, int]:
    return {part: int(memory.get(f"{part}_bytes", 0)) for part in PARTS}


def _parts_unplanned(ws: Any) -> dict[str, int]:
    """Return the parts of a worker that reserves nothing, from what distributed knows."""
    held = min(ws.memory.managed, ws.memory.process)
    return {"unmanaged": ws.memory.process - held, "held": held, "in_flight": 0, "reserved": 0}
