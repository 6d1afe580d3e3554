"""The GPU that this process is pinned to, through CuPy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import cupy
import numpy as np
from distributed.protocol.serialize import deserialize, serialize

from gpusched.nvtx_ranges import Kind, shown
from gpusched.serialization.arrays import cupy as arrays
from gpusched.workers import pinning
from gpusched.workers.device.base import Frozen, LostContextError
from gpusched.workers.device.page_locked import PageLockedMemory
from gpusched.workers.memory.sizes import device_nbytes
from gpusched.workers.pool import install

_FINAL = {
    "cudaErrorAssert", "cudaErrorContained", "cudaErrorECCUncorrectable", "cudaErrorExternalDevice",
    "cudaErrorHardwareStackError", "cudaErrorIllegalAddress", "cudaErrorIllegalInstruction",
    "cudaErrorInvalidAddressSpace", "cudaErrorInvalidPc", "cudaErrorLaunchFailure",
    "cudaErrorLaunchTimeout", "cudaErrorMisalignedAddress", "cudaErrorMpsClientTerminated",
    "cudaErrorNvlinkUncorrectable", "cudaErrorTensorMemoryLeak",
    "CUDA_ERROR_ASSERT", "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_MPS_CLIENT_TERMINATED", "CUDA_ERROR_NVLINK_UNCORRECTABLE",
}  # fmt: skip
"""Errors after which every call of the process fails; source: the CUDA runtime's and driver's
descriptions, "the process must be terminated and relaunched"."""


_AT_ONCE = 1 << 16
"""Bytes of arrays that are copied without page-locked buffers, which take longer to be lent."""


class _Plain(NamedTuple):
    """What a dense array needs besides its bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype


class CudaDevice:
    """The one GPU that this process sees.

    Raises `gpusched.workers.pinning.WrongDeviceError` if the process sees another GPU, or several.

    Parameters
    ----------
    uuid
        Which GPU that must be.
    memory_limit
        Bytes that task results may take on it; 0 for no limit.
    pool, pool_size
        As in `gpusched.workers.pool.install`.
    """

    kind = "cuda"

    def __init__(self, uuid: str, memory_limit: int = 0, pool: str = "cupy",
                 pool_size: int | None = None) -> None:  # fmt: skip
        pinning.check(uuid)
        self.uuid = uuid or f"GPU-{pinning.visible_uuids()[0]}"
        self.memory_limit = memory_limit
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        self.name: str = properties["name"].decode()
        self.pool = install(pool, pool_size)
        self._page_locked = PageLockedMemory()
        self._threads = threading.local()

    def nbytes(self, value: Any) -> int:
        """Return the bytes of device memory that a value holds."""
        return device_nbytes(value)

    def used(self) -> int:
        """Return the bytes that the pool has lent."""
        return self.pool.used()

    def held(self) -> int:
        """Return the bytes that the pool has taken from the driver."""
        return self.pool.held()

    def free_unused(self) -> int:
        """Give free blocks back to the driver, page-locked ones too; return those on the GPU."""
        self._page_locked.free_unused()
        # Filled by `cupy.asarray` of host arrays, in tasks and in libraries.
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        return self.pool.free_unused()

    @shown(Kind.SPILL, "to host memory")
    def freeze(self, value: Any) -> Frozen:
        """Copy a value to page-locked memory."""
        header, frames = serialize(value, serializers=("cuda", "dask", "pickle"), on_error="raise")
        copies = [self._to_host(frame) for frame in frames]
        cupy.cuda.get_current_stream().synchronize()
        return Frozen((header, [_on_device(frame) for frame in frames]), copies)

    def _to_host(self, frame: Any) -> Any:
        """Start copying a frame that is on the GPU; return others as arrays."""
        if not _on_device(frame):
            return np.frombuffer(frame, np.uint8)
        array = cupy.asarray(frame).view(np.uint8).ravel()
        return array.get(out=self._page_locked.take(array.nbytes), blocking=False)

    @shown(Kind.SPILL, "from host memory")
    def thaw(self, frozen: Frozen) -> Any:
        """Copy a value back to the device."""
        if isinstance(frozen.header, _Plain):
            shape, dtype = frozen.header
            value = _to_device(frozen.frames[0], dtype, shape)
            cupy.cuda.get_current_stream().synchronize()
            return value
        header, on_device = frozen.header
        placed = zip(frozen.frames, on_device, strict=True)
        frames = [
            _to_device(f, f.dtype, f.shape) if device else memoryview(f) for f, device in placed
        ]
        value = deserialize(header, frames)
        cupy.cuda.get_current_stream().synchronize()
        return value

    def adopt(self, array: np.ndarray) -> Frozen:
        """Return a host array as if it had been frozen."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return Frozen(_Plain(array.shape, array.dtype), [flat])

    def copies(self) -> CudaCopies:
        """Return what copies chunks of NumPy programs."""
        return CudaCopies()

    @contextmanager
    def stream(self) -> Iterator[Any]:
        """Give the calling thread its own stream.

        It begins after what the null stream has been given so far: values that were unpickled or
        copied in other threads are copied there, and nobody else waits for those copies.
        """
        if not hasattr(self._threads, "stream"):
            self._threads.stream = cupy.cuda.Stream(non_blocking=True)
        with self._threads.stream as stream:
            stream.wait_event(cupy.cuda.Stream.null.record())
            yield stream

    def synchronize(self) -> None:
        """Wait for the calling thread's stream."""
        cupy.cuda.get_current_stream().synchronize()

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the pool or the driver had no memory left."""
        if isinstance(error, MemoryError | cupy.cuda.memory.OutOfMemoryError):
            return True
        return any(word in str(error) for word in ("cudaErrorMemoryAllocation", "OUT_OF_MEMORY"))

    def fault(self, error: BaseException) -> str | None:
        """Return why the context is lost, or None if it still answers."""
        if isinstance(error, LostContextError) or any(name in str(error) for name in _FINAL):
            return f"{type(error).__name__}: {error}"
        try:
            # An error that is final comes back from every later call.
            cupy.cuda.runtime.deviceSynchronize()
        except cupy.cuda.runtime.CUDARuntimeError as later:
            return f"{type(later).__name__}: {later}"
        return None


class CudaCopies:
    """Copies arrays through page-locked buffers, block by block; small ones at once.

    Notes
    -----
    Thread-safe.
    """

    @shown(Kind.TRANSFER, "to the device")
    def to_device(self, array: np.ndarray, wait: bool = True) -> Any:
        """Return a copy in device memory; axes along which an array repeats itself stay so."""
        return arrays.to_device(array, wait)

    def wait(self) -> None:
        """Wait for what the calling thread's stream has been given."""
        cupy.cuda.get_current_stream().synchronize()

    @shown(Kind.TRANSFER, "to the host")
    def to_host(self, array: Any) -> np.ndarray:
        """Return a copy in host memory, in the same order of axes."""
        if array.nbytes > _AT_ONCE or not array.flags.c_contiguous:
            return arrays.to_host(array)
        found: np.ndarray = array.get()
        return found


def _on_device(frame: Any) -> bool:
    return hasattr(frame, "__cuda_array_interface__")


def _to_device(frame: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """Start copying host memory to a new array; the memory must stay until the stream is done.

    `cupy.asarray` would first copy it to page-locked memory of CuPy's own.
    """
    array = cupy.empty(shape, dtype)
    array.set(frame.view(dtype).reshape(shape))
    return array
