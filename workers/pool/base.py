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

    def used(self) -> int:
        """Return the bytes lent to arrays."""

    def free_unused(self) -> int:
        """Give free blocks back to the driver; return their bytes."""

    def limit(self, nbytes: int) -> bool:
        """Hold at most so many bytes, 0 for any number; return whether the pool can be bounded."""
