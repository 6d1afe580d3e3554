"""The host's cores and memory, for workers without a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gpusched.workers.device.base import Frozen, LostContextError
from gpusched.workers.pool.host import HostPool


class HostDevice:
    """A slice of the host: results are ordinary objects, which the store spills to disk.

    Parameters
    ----------
    memory_limit
        Not used for spilling, because results are in host memory, which has its own limit.

    Examples
    --------
    >>> from gpusched.workers.device import HostDevice
    >>> HostDevice().is_out_of_memory(MemoryError())
    True
    """

    kind = "cpu"
    uuid = ""

    def __init__(self, memory_limit: int = 0) -> None:
        self.memory_limit = memory_limit
        self.name = "host"
        self._pool = HostPool()

    def nbytes(self, value: Any) -> int:
        """Return 0: nothing is anywhere but on the host."""
        return 0

    def used(self) -> int:
        """Return 0: the host's memory is what distributed's own monitor measures."""
        return 0

    def held(self) -> int:
        """Return the bytes of free chunk buffers that are kept for the next chunks."""
        return self._pool.held()

    def free_unused(self) -> int:
        """Give the free chunk buffers back; return their bytes."""
        return self._pool.free_unused()

    def freeze(self, value: Any) -> Frozen:
        """Refuse: no value is on this device."""
        raise TypeError(f"a {type(value).__name__} is in host memory already")

    def thaw(self, frozen: Frozen) -> Any:
        """Refuse: no value comes from this device."""
        raise TypeError("a frozen GPU value cannot be brought to a worker without a GPU")

    def adopt(self, array: np.ndarray) -> Frozen:
        """Refuse: a host array stays what it is."""
        raise TypeError("a host array need not be copied to the host on a worker without a GPU")

    def copies(self) -> None:
        """Return None: chunks are on the host already."""

    def stream(self) -> AbstractContextManager[Any]:
        """Return a block that changes nothing: calls on the host are done when they return."""
        return nullcontext()

    def synchronize(self) -> None:
        """Wait for nothing."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether it is Python's own error."""
        return isinstance(error, MemoryError)

    def fault(self, error: BaseException) -> str | None:
        """Return the text of an error that a device's own code has found to be final."""
        return str(error) if isinstance(error, LostContextError) else None
