"""A device that is not there: arrays on it are NumPy arrays under another type, and it can fill.

For what needs a device whose memory is not the host's. Values are never wrong on it, only in
another place, as on a GPU.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gpusched.workers.device import HostDevice, LostContextError
from gpusched.workers.device.base import Frozen
from gpusched.workers.worker import DeviceWorker


class EmulatedArray:
    """An array on the emulated device; its bytes count there for as long as it lives."""

    def __init__(self, device: EmulatedDevice, values: np.ndarray) -> None:
        device.take(values.nbytes)
        self.device = device
        self.values = values

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def __sizeof__(self) -> int:
        return self.nbytes

    def __del__(self) -> None:
        if hasattr(self, "values"):
            self.device.give(self.values.nbytes)


class EmulatedDevice:
    """Memory of a given size, lent to arrays."""

    kind = "cuda"
    uuid = "GPU-emulated"
    name = "emulated GPU"

    def __init__(self, size: int, memory_limit: int = 0) -> None:
        self.size = size
        self.memory_limit = memory_limit
        self.freed = 0
        self.synchronized = 0
        self._used = 0
        self._lock = threading.Lock()

    def array(self, values: Any) -> EmulatedArray:
        return EmulatedArray(self, np.array(values))

    def copies(self) -> None:
        """Return None: what copies chunks of NumPy programs makes arrays of CuPy's."""

    def take(self, nbytes: int) -> None:
        with self._lock:
            if self._used + nbytes > self.size:
                raise MemoryError(f"cannot take {nbytes} bytes, {self.size - self._used} are free")
            self._used += nbytes

    def give(self, nbytes: int) -> None:
        with self._lock:
            self._used -= nbytes

    def nbytes(self, value: Any) -> int:
        if isinstance(value, list | tuple):
            return sum(map(self.nbytes, value))
        return value.nbytes if isinstance(value, EmulatedArray) else 0

    def used(self) -> int:
        return self._used

    held = used

    def free_unused(self) -> int:
        self.freed += 1
        return 0

    def freeze(self, value: EmulatedArray) -> Frozen:
        header = (value.values.shape, value.values.dtype)
        return Frozen(header, [np.frombuffer(value.values.tobytes(), np.uint8)])

    def thaw(self, frozen: Frozen) -> EmulatedArray:
        shape, dtype = frozen.header
        return self.array(np.frombuffer(frozen.frames[0], dtype).reshape(shape))

    def adopt(self, array: np.ndarray) -> Frozen:
        return Frozen((array.shape, array.dtype), [array.reshape(-1).view(np.uint8)])

    def stream(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def synchronize(self) -> None:
        self.synchronized += 1

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def fault(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, LostContextError) else None


class EmulatedWorker(DeviceWorker):
    """A worker that takes an emulated device for its GPU."""

    def _open_device(self, gpu: bool, uuid: str, memory_limit: int, *pool: Any) -> Any:
        return EmulatedDevice(2**30, memory_limit) if gpu else HostDevice()
