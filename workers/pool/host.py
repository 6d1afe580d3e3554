"""The memory that a CPU worker keeps for reuse."""

from __future__ import annotations

from gpusched.backends.buffer_pool import pool
from gpusched.workers.pool.base import Pool


class HostPool(Pool):
    """The chunk buffers that a CPU worker's process keeps for the next chunks.

    Buffers that are lent belong to their arrays. Those kept have a limit of their own,
    `gpusched.memory.pool-limit`.

    Examples
    --------
    >>> from gpusched.workers.pool import HostPool
    >>> pool = HostPool()
    >>> pool.free_unused() >= 0, pool.held()
    (True, 0)
    """

    kind = "host"

    def held(self) -> int:
        """Return the bytes in free buffers."""
        return int(pool.held())

    def free_unused(self) -> int:
        """Give free buffers back to the system; return their bytes."""
        freed = int(pool.held())
        pool.clear()
        return freed
