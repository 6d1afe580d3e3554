"""Chunk buffers that are used again: fresh pages cost more than a fused kernel does."""

from __future__ import annotations

import math
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from gpusched import config
from gpusched.config import ChoiceError
from gpusched.quantities import read_bytes, read_seconds
from gpusched.store.statistics import updating

SMALLEST = 1 << 18
"""Bytes below which the C library's own allocator is as good."""

GRANULE = 1 << 16
"""Buffer lengths are rounded up to this many bytes, so that unequal chunks share them."""


HUGE = 2 << 20
"""Bytes of a huge page on x86-64 and on most others; the kernel fills one at its first access."""

# Shared memory, which is mmap's own default, would be one memory for a process and its forks.
_PRIVATE = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
)


def owner(array: Any) -> Any:
    """Return the array whose memory a view shows.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.backends.buffer_pool import owner
    >>> whole = np.zeros(10)
    >>> owner(whole[2:][::2]) is owner(np.lib.stride_tricks.as_strided(whole)) is whole
    True
    """
    found = array
    while (array := getattr(array, "base", None)) is not None:  # That of some views is no array.
        found = array if hasattr(array, "__array_ufunc__") and hasattr(array, "nbytes") else found
    return found


def new_block(size: int) -> np.ndarray:
    """Return so many bytes of new memory; the system gets them back when nothing refers to them.

    Parameters
    ----------
    size
        Bytes, more than 0. Large blocks start on a huge page, and end on ordinary ones, so that no
        more memory is taken than asked for.

    Raises
    ------
    MemoryError
        If the system gives no more.

    Examples
    --------
    >>> from gpusched.backends.buffer_pool import HUGE, new_block
    >>> found = new_block(3 * HUGE)
    >>> found.nbytes == 3 * HUGE, found.ctypes.data % HUGE
    (True, 0)
    """
    room = HUGE if size >= HUGE else 0
    try:
        mapping = mmap.mmap(-1, size + room, **_PRIVATE)
    except OSError as error:
        raise MemoryError(f"cannot allocate {size:,} bytes for a chunk: {error}") from error
    array = np.frombuffer(mapping, np.uint8)
    start = -array.__array_interface__["data"][0] % HUGE if room else 0
    if room and hasattr(mmap, "MADV_HUGEPAGE"):
        _advise(mapping, start, size // HUGE * HUGE)
    return array[start : start + size]


def _advise(mapping: mmap.mmap, start: int, length: int) -> None:
    # A kernel without huge pages says that it does not know them.
    with suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE, start, length)


class _Lease:
    """Lends a buffer to one array and its views; the last of them gives it back."""

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_pool")

    def __init__(self, pool: BufferPool, block: np.ndarray, shape: tuple[int, ...],
                 dtype: np.dtype) -> None:  # fmt: skip
        self._pool = pool
        self._block = block
        address = block.__array_interface__["data"]
        self.__array_interface__: dict[str, Any] = {
            "shape": shape, "typestr": dtype.str, "data": address, "version": 3,
        }  # fmt: skip

    def __del__(self) -> None:
        self._pool._returned(self._block)


class BufferPool:
    """A bounded store of free buffers.

    Parameters
    ----------
    limit
        Returns the bytes of free buffers kept at most; beyond that, those that have been free for
        longest are given back to the system. Asked whenever a new buffer is needed.
    keep
        Returns the seconds after which a free buffer is given back in any case; None for never.
        Asked whenever buffers are lent again after a time without any.
    clock
        Seconds.

    Notes
    -----
    Thread-safe. What may run when a buffer comes back takes no lock, and each of its steps is one
    operation on a dictionary or a deque, because the garbage collector may do it at any point,
    also in the middle of `empty`. A fork has a store of its own, empty at first.

    Examples
    --------
    >>> pool = BufferPool(limit=lambda: 2**20)
    >>> address = pool.empty((2**17,), np.dtype("f4")).ctypes.data
    >>> pool.empty((2**16,), np.dtype("f8")).ctypes.data == address
    True
    """

    def __init__(
        self,
        limit: Callable[[], int],
        keep: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_limit = limit
        self._read_keep = keep
        self._clock = clock
        self._limit = 0
        self._seconds: float | None = None
        self._start()

    def _start(self) -> None:
        # By length, when each became free and the buffer; the one that was free last is at the end.
        self._free: dict[int, deque[tuple[float, np.ndarray]]] = {}
        self._lent: dict[int, int] = {}
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an uninitialised C-ordered array, in a used buffer where there is one.

        Raises
        ------
        MemoryError
            If there is no memory, also after all free buffers have been given back.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALLEST:
            return np.empty(shape, dtype)
        size = -(-nbytes // GRANULE) * GRANULE
        block = self._used(size)
        if block is None:
            # Settings are read here only: that takes longer than all the rest.
            self._limit = self._read_limit()
            if nbytes > self._limit:
                return np.empty(shape, dtype)
            block = self._new(size)
        self._lent[id(block)] = size
        if self._keeper is None:
            self._watch()
        return np.asarray(_Lease(self, block, shape, dtype))

    def _used(self, size: int) -> np.ndarray | None:
        try:
            block = self._free[size].pop()[1]
        except (IndexError, KeyError):
            return None
        with updating() as counters:
            counters.buffers_reused += 1
        return block

    def full(self, shape: tuple[int, ...], value: Any, dtype: np.dtype) -> np.ndarray:
        """Return an array of one value, in a used buffer where there is one."""
        array = self.empty(shape, dtype)
        np.copyto(array, value, casting="unsafe")  # As `numpy.full`: `fill` refuses NaN.
        return array

    def _new(self, size: int) -> np.ndarray:
        with updating() as counters:
            counters.buffers_made += 1
        try:
            return new_block(size)
        except MemoryError:
            self.clear()
        return new_block(size)

    def held(self) -> int:
        """Return the bytes in free buffers."""
        return sum(size * len(blocks) for size, blocks in list(self._free.items()))

    def lent(self) -> int:
        """Return the bytes in buffers that arrays have."""
        return sum(list(self._lent.values()))

    def clear(self) -> None:
        """Give every free buffer back to the system."""
        # What comes back meanwhile may be let go of with the rest.
        self._free = {}

    def give_back(self, seconds: float) -> None:
        """Give the buffers back to the system that have been free for so many seconds."""
        until = self._clock() - seconds
        while self._drop_oldest(until):
            pass
        if not self.held():
            self.clear()

    def _returned(self, block: np.ndarray) -> None:
        self._lent.pop(id(block), None)
        self._free.setdefault(block.nbytes, deque()).append((self._clock(), block))
        while self.held() > self._limit and self._drop_oldest(math.inf):
            pass

    def _drop_oldest(self, until: float) -> bool:
        """Give one buffer back, if one has been free since `until`."""
        oldest, blocks = math.inf, None
        for each in list(self._free.values()):
            try:
                since = each[0][0]
            except IndexError:
                continue
            if since <= until and since < oldest:
                oldest, blocks = since, each
        try:
            return blocks is not None and bool(blocks.popleft())
        except IndexError:
            return True  # Another thread took it, so there is another oldest one.

    def _watch(self) -> None:
        """See to it that a thread gives back what is free for long, as long as there is any."""
        self._seconds = self._read_keep()
        if self._seconds is None:
            return
        with self._lock:
            if self._keeper is None:
                name = "gpusched-buffers"
                self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)
                try:
                    self._keeper.start()
                except RuntimeError:
                    # As the interpreter ends, or where there are too many: tried again next time.
                    self._keeper = None

    def _keep(self) -> None:
        while True:
            seconds = self._seconds
            if seconds is not None:
                time.sleep(seconds / 2)
                self.give_back(seconds)
            with self._lock:
                # First not to be there, then to look: whoever lends a buffer after the look finds
                # that there is no keeper.
                keeper, self._keeper = self._keeper, None
                if seconds is None or not (self._lent or self.held()):
                    return
                self._keeper = keeper


def configured_limit() -> int:
    """Return the bytes that ``gpusched.memory.pool-limit`` allows.

    Raises
    ------
    ChoiceError
        If it is no amount of memory.

    Examples
    --------
    >>> import dask
    >>> from gpusched.backends.buffer_pool import configured_limit
    >>> with dask.config.set({"gpusched.memory.pool-limit": "1 MiB"}):
    ...     configured_limit()
    1048576
    """
    value = config.get("memory.pool-limit")
    if type(value) is float and 0 <= value < 1:
        # The limit of this container or job, where it has one.
        from distributed.system import MEMORY_LIMIT

        return int(value * MEMORY_LIMIT)
    return int(_read(read_bytes, "pool-limit", value, 0))


def configured_keep() -> float | None:
    """Return the seconds that ``gpusched.memory.pool-keep`` allows, None for any number."""
    value = config.get("memory.pool-keep")
    return None if value is None else _read(read_seconds, "pool-keep", value, 0.001)


def _read(parse: Callable[[str, Any, Any], float], name: str, value: Any, least: float) -> float:
    try:
        return parse(f"gpusched.memory.{name}", value, least)
    except ValueError as error:
        raise ChoiceError(str(error)) from error


pool = BufferPool(configured_limit, configured_keep)
"""This process's pool."""

os.register_at_fork(after_in_child=pool._start)
