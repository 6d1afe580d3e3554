"""How much of a graph goes into one batch, as the configuration has it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from dask.system import CPU_COUNT
from dask.utils import parse_bytes

from gpusched import config

A_THREAD = 4
"""Batches that each thread finds in a stage of a graph, at least."""
BATCHES = 64
"""Batches that a stage is left however few threads there are: others may join a cluster."""


@dataclass(frozen=True)
class Limits:
    """What a batch may be."""

    tasks: int
    """Neighbours side by side; fewer than 2 for no batches at all."""
    nbytes: int
    """Bytes of all chunks that a batch makes and takes."""
    chunk: int
    """Bytes of the largest chunk that is batched."""
    least: int
    """Batches that a stage of the graph is left at least."""

    def side_by_side(self, width: int) -> int:
        """Return how many of a stage's `width` tasks go into a batch.

        Examples
        --------
        >>> from gpusched.graph.limits import Limits
        >>> limits = Limits(tasks=256, nbytes=1 << 22, chunk=1 << 17, least=64)
        >>> limits.side_by_side(100_000), limits.side_by_side(640), limits.side_by_side(63)
        (256, 10, 1)
        """
        return max(1, min(self.tasks, width // self.least))


def limits() -> Limits:
    """Return what the configuration has, for the threads that are known here.

    Raises
    ------
    ValueError
        If a setting is not a number of tasks or bytes.
    """
    least = config.get("batching.least")
    if least is None:
        least = max(BATCHES, A_THREAD * threads())
    return Limits(
        _count("batching.tasks", config.get("batching.tasks")),
        _bytes("batching.bytes", config.get("batching.bytes")),
        _bytes("batching.chunk-bytes", config.get("batching.chunk-bytes")),
        max(1, _count("batching.least", least)),
    )


def _count(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"gpusched.{key} is {value!r}: it takes a number, 0 or more")
    return value


def _bytes(key: str, value: Any) -> int:
    try:
        return int(parse_bytes(value))
    except (TypeError, ValueError, AttributeError):
        raise ValueError(
            f"gpusched.{key} is {value!r}: it takes a number of bytes, such as 4 MiB"
        ) from None


def threads() -> int:
    """Return the threads of the largest cluster scheduled in this process, or of this machine.

    A scheduler optimises graphs for its workers, whose machines are not its own.
    """
    scheduler = sys.modules.get("distributed.scheduler")
    clusters = () if scheduler is None else tuple(scheduler.Scheduler._instances)
    return max((int(each.total_nthreads) for each in clusters), default=0) or int(CPU_COUNT)
