"""GPU memory of other processes of this machine, by CUDA's interprocess handles.

The sender owns the memory: its `gpusched.serialization.codec.link.Transfer` holds it until the
receiver has answered that it has a copy, or the connection is broken. The receiver opens the memory
while it reads the message, copies it and closes it, so that nothing is open between messages. A
copy counts only if the owner still lived when it was done: its driver takes the memory of a process
that ends, whoever reads it.

distributed reads messages of so few bytes on its event loop, which waits for the copy: 5 ms for
50 MB, the most that it fetches in one message unless a single result is larger, at 10 GB/s.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import psutil

from gpusched.nvtx_ranges import Kind, shown
from gpusched.serialization.codec import device
from gpusched.serialization.frames import CorruptFrameError

NAME = "device-memory"
"""What messages have in place of a codec's name."""


class UnopenedMemoryError(RuntimeError):
    """A process that lives has GPU memory that this one cannot open."""


class Handle(NamedTuple):
    """Where a buffer is, as messages have it."""

    handle: bytes
    """CUDA's, of the allocation."""
    offset: int
    """Bytes from the allocation's beginning."""
    process: int
    """Of the owner."""
    started: float
    """When the owner was started, as `psutil` reports it: another process may get its number."""


def offer(data: Any) -> Handle | None:
    """Return where a buffer is; None if no other process can open its memory.

    Parameters
    ----------
    data
        Shape ``(n,)``, dtype uint8, CuPy's. The calling thread's stream has filled it.
    """
    import cupy
    from cuda.bindings import driver

    cupy.cuda.get_current_stream().synchronize()
    try:
        handle = cupy.cuda.runtime.ipcGetMemHandle(data.data.ptr)
    except cupy.cuda.runtime.CUDARuntimeError:
        return None  # Of a pool of the driver's, for example, or of a MIG instance.
    status, start, _ = driver.cuMemGetAddressRange(data.data.ptr)
    if status:
        return None
    return Handle(bytes(handle), data.data.ptr - int(start), os.getpid(), _started())


@shown(Kind.TRANSFER, "from another process")
def fetch(handle: Handle, nbytes: int) -> Any:
    """Return a copy, on the current GPU, of a buffer of another process.

    Raises `UnopenedMemoryError` if the memory cannot be opened here; `ConnectionError` if its owner
    has ended; `CorruptFrameError` if the buffer is not within the allocation; `MemoryError` if
    there is no room for the copy.
    """
    import cupy

    data, stream = cupy.empty(nbytes, np.uint8), cupy.cuda.get_current_stream()
    kind = cupy.cuda.runtime.memcpyDefault
    try:
        with _opened(handle, nbytes) as address:
            cupy.cuda.runtime.memcpyAsync(data.data.ptr, address, nbytes, kind, stream.ptr)
            stream.synchronize()
    except BaseException:
        # distributed keeps errors that it logs, and with them what is in this frame.
        del data
        raise
    return data


def fetch_to_host(handle: Handle, nbytes: int) -> np.ndarray:
    """Return a copy in host memory; raises what `fetch` raises."""
    import cupy

    with _opened(handle, nbytes) as address:
        memory = cupy.cuda.UnownedMemory(address, nbytes, None, cupy.cuda.Device().id)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        return device.download(cupy.ndarray(nbytes, np.uint8, pointer))


@contextmanager
def _opened(handle: Handle, nbytes: int) -> Iterator[int]:
    """Give the address of a buffer whose owner lives also at the end of the block."""
    import cupy
    from cuda.bindings import driver

    runtime = cupy.cuda.runtime
    try:
        start = runtime.ipcOpenMemHandle(handle.handle)
    except runtime.CUDARuntimeError as error:
        _check_alive(handle)
        raise UnopenedMemoryError(f"GPU memory of process {handle.process}: {error}") from None
    try:
        _, _, size = driver.cuMemGetAddressRange(start)
        if not 0 <= handle.offset <= handle.offset + nbytes <= int(size):
            raise CorruptFrameError(f"{nbytes} bytes at {handle.offset} of an allocation of {size}")
        yield start + handle.offset
    finally:
        runtime.ipcCloseMemHandle(start)
    _check_alive(handle)


def _check_alive(handle: Handle) -> None:
    if not is_alive(handle):
        raise ConnectionError(f"process {handle.process} ended while its GPU memory was copied")


def is_alive(handle: Handle) -> bool:
    """Return whether the process that offered a buffer still has its memory, and can be seen."""
    try:
        process = psutil.Process(handle.process)
        ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not ended and process.create_time() == handle.started
    except psutil.Error:
        return False


def _started() -> float:
    return _started_as(os.getpid())


@functools.cache
def _started_as(process: int) -> float:
    return psutil.Process(process).create_time()
