"""The memory that a CPU worker keeps for reuse."""

from __future__ import annotations

import sys

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
        """Return the bytes in free buffers; 0 where no chunk was ever fused."""
        memory = sys.modules.get("gpusched.backends.buffer_pool")
        return 0 if memory is None else int(memory.pool.held())

    def free_unused(self) -> int:
        """Give free buffers back to the system; return their bytes."""
        memory = sys.modules.get("gpusched.backends.buffer_pool")
        if memory is None:
            return 0
        freed = int(memory.pool.held())
        memory.pool.clear()
        return freed
