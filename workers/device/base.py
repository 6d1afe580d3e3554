"""What every device offers to the worker that owns it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class OutOfDeviceMemoryError(MemoryError):
    """A task did not fit, also after everything that could be spilled had been."""


class LostContextError(RuntimeError):
    """The device's context cannot compute any more; only a new process can."""


@dataclass(frozen=True)
class Frozen:
    """A value of the device's, as bytes in host memory."""

    header: Any
    """What `distributed.protocol` needs besides the bytes."""
    frames: list[Any]
    """One-dimensional arrays of bytes, page-locked where the device has such memory."""

    @property
    def nbytes(self) -> int:
        """The bytes of host memory it takes."""
        return sum(memoryview(frame).nbytes for frame in self.frames)


class Copies(Protocol):
    """Copies chunks to and from a device."""

    def to_device(self, array: np.ndarray, wait: bool = True) -> Any:
        """Return a copy in device memory.

        Without waiting it is there for what the calling thread launches next, and for others once
        the thread has called `wait`.
        """

    def wait(self) -> None:
        """Wait for what the calling thread has begun."""

    def to_host(self, array: Any) -> np.ndarray:
        """Return a copy in host memory."""


class Device(Protocol):
    """A GPU, or what stands for one.

    Notes
    -----
    Thread-safe: tasks use it from their threads, the store from the thread that spills.
    """

    kind: str
    """``cuda`` or ``cpu``."""
    uuid: str
    """Of the GPU; empty for the host."""
    name: str
    """The product's name."""
    memory_limit: int
    """Bytes that task results may take on the device; 0 for no limit."""

    def nbytes(self, value: Any) -> int:
        """Return the bytes of device memory that a value holds; 0 if it is on the host."""

    def used(self) -> int:
        """Return the bytes that arrays take on the device, those of running tasks included."""

    def held(self) -> int:
        """Return the bytes that this process has taken from the device, free blocks included."""

    def free_unused(self) -> int:
        """Give free blocks back to the device; return their bytes."""

    def freeze(self, value: Any) -> Frozen:
        """Copy a value to host memory."""

    def thaw(self, frozen: Frozen) -> Any:
        """Copy a value back to the device."""

    def adopt(self, array: np.ndarray) -> Frozen:
        """Return a host array as if it had been the device's, and was frozen."""

    def copies(self) -> Copies | None:
        """Return what copies chunks of NumPy programs to the device; None if it has no memory."""

    def stream(self) -> AbstractContextManager[Any]:
        """Give the calling thread a stream of its own while the block runs."""

    def synchronize(self) -> None:
        """Wait for what the calling thread has launched; raises what went wrong there."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an error says that the device's memory did not suffice."""

    def fault(self, error: BaseException) -> str | None:
        """Return why no task can run on the device after this error, or None if one can."""
