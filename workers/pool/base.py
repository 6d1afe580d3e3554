"""What every pool offers to the worker that owns it."""

from __future__ import annotations

from typing import Protocol


class Pool(Protocol):
    """Memory that a worker has taken, and lends to its tasks.

    Notes
    -----
    Thread-safe.
    """

    kind: str
    """One of ``none``, ``cupy``, ``async``, ``rmm``, or ``host``."""

    def held(self) -> int:
        """Return the bytes taken from the driver, free blocks included."""
        return self.used()

    def used(self) -> int:
        """Return the bytes lent to arrays; 0 where the pool does not know them."""
        return 0

    def free_unused(self) -> int:
        """Give free blocks back to the driver, if the pool can; return their bytes."""
        return 0

    def limit(self, nbytes: int) -> bool:
        """Hold at most so many bytes, 0 for any number; return whether the pool can be bounded."""
        return False
