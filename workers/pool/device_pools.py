"""One class for each kind of device pool, over CuPy and RMM."""

from __future__ import annotations

from typing import Any

from gpusched.workers.pool.base import Pool

_ERROR_MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation
_RMM_ALIGNMENT = 256


class CupyPool(Pool):
    """CuPy's default pool.

    Notes
    -----
    Its free blocks belong to the stream that they were allocated on. So a limit may be reached
    while other streams' blocks are free, and CuPy itself does not look for them then.
    """

    kind = "cupy"

    def __init__(self, cupy: Any, limit: int) -> None:
        self._pool = cupy.get_default_memory_pool()
        self._too_little = cupy.cuda.memory.OutOfMemoryError
        self._pool.set_limit(size=limit)
        cupy.cuda.set_allocator(self._allocate)

    def _allocate(self, nbytes: int) -> Any:
        try:
            return self._pool.malloc(nbytes)
        except self._too_little:
            self._pool.free_all_blocks()
        return self._pool.malloc(nbytes)

    def held(self) -> int:
        """Return the bytes taken from the driver, free blocks included."""
        return int(self._pool.total_bytes())

    def used(self) -> int:
        """Return the bytes lent to arrays."""
        return int(self._pool.used_bytes())

    def free_unused(self) -> int:
        """Give free blocks back to the driver; return their bytes."""
        before = self.held()
        self._pool.free_all_blocks()
        # Another thread may have taken more meanwhile.
        return max(0, before - self.held())

    def limit(self, nbytes: int) -> bool:
        """Hold at most so many bytes, 0 for any number."""
        self._pool.set_limit(size=nbytes)
        return True


class AsyncPool(CupyPool):
    """The driver's own pool, which orders what it lends by stream.

    What is free beyond `kept` bytes goes back to the driver when a stream is synchronised, which
    happens at the end of each task.
    """

    kind = "async"

    def __init__(self, cupy: Any, kept: int) -> None:
        self._pool = cupy.cuda.MemoryAsyncPool()
        # For this pool CuPy's "limit" is the release threshold: it bounds what is kept free.
        self._pool.set_limit(size=kept)
        cupy.cuda.set_allocator(self._pool.malloc)

    def limit(self, nbytes: int) -> bool:
        """Change nothing: the driver's pool cannot be bounded."""
        return False


class RmmPool(Pool):
    """RMM's pool of this device, under a counter of what it lends; it keeps all it has taken."""

    kind = "rmm"

    def __init__(self, cupy: Any, rmm: Any, size: int) -> None:
        initial = size // _RMM_ALIGNMENT * _RMM_ALIGNMENT
        self._pool = rmm.mr.PoolMemoryResource(
            rmm.mr.CudaMemoryResource(), initial_pool_size=initial
        )
        self._counter = rmm.mr.StatisticsResourceAdaptor(self._pool)
        rmm.mr.set_current_device_resource(self._counter)
        cupy.cuda.set_allocator(rmm.allocators.cupy.rmm_cupy_allocator)

    def held(self) -> int:
        """Return the bytes taken from the driver, free blocks included."""
        return int(self._pool.pool_size())

    def used(self) -> int:
        """Return the bytes lent to arrays."""
        return int(self._counter.allocation_counts.current_bytes)


class NoPool(Pool):
    """The driver itself, asked for each array; counts what arrays take.

    Notes
    -----
    Without a lock, since the garbage collector may free an array at any point, also in the middle
    of `_allocate`: every step is one operation on a dictionary.
    """

    kind = "none"

    def __init__(self, cupy: Any) -> None:
        self._runtime = cupy.cuda.runtime
        self._too_little = cupy.cuda.memory.OutOfMemoryError
        self._sizes: dict[int, int] = {}
        self._limit = 0
        # Holds the functions below, and through them this object, for as long as arrays live.
        self._allocator = cupy.cuda.PythonFunctionAllocator(self._allocate, self._free)
        cupy.cuda.set_allocator(self._allocator.malloc)

    def _allocate(self, nbytes: int, device: int) -> int:
        if self._limit and self.used() + nbytes > self._limit:
            raise self._too_little(nbytes, self.used(), self._limit)
        try:
            pointer = int(self._runtime.malloc(nbytes))
        except self._runtime.CUDARuntimeError as error:
            if error.status != _ERROR_MEMORY_ALLOCATION:
                raise
            raise self._too_little(nbytes, self.used(), self._limit) from error
        self._sizes[pointer] = nbytes
        return pointer

    def _free(self, pointer: int, device: int) -> None:
        # First forgotten, then freed: another thread may get the same address at once.
        self._sizes.pop(pointer, None)
        self._runtime.free(pointer)

    def used(self) -> int:
        """Return the bytes that arrays take."""
        return sum(list(self._sizes.values()))

    def limit(self, nbytes: int) -> bool:
        """Hold at most so many bytes, 0 for any number."""
        self._limit = nbytes
        return True
