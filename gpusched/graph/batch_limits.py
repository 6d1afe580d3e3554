"""How much of a graph goes into one batch, as the configuration has it."""

from __future__ import annotations

from dask.system import CPU_COUNT

from gpusched import config
from gpusched.dataclass import dataclass
from gpusched.quantities import read_bytes, read_count
from gpusched.roles import cluster_threads

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
        >>> from gpusched.graph.batch_limits import Limits
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
        read_count("gpusched.batching.tasks", config.get("batching.tasks")),
        read_bytes("gpusched.batching.bytes", config.get("batching.bytes")),
        read_bytes("gpusched.batching.chunk-bytes", config.get("batching.chunk-bytes")),
        max(1, read_count("gpusched.batching.least", least)),
    )


def threads() -> int:
    """Return the threads of the largest cluster scheduled in this process, or of this machine.

    A scheduler optimises graphs for its workers, whose machines are not its own.
    """
    return cluster_threads() or int(CPU_COUNT)
