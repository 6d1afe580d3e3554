"""What a worker is asked by a page; runs on the worker, and is answered by its stream.

The scheduler must not unpickle what workers return, so that answers are plain messages.
"""

from __future__ import annotations

import asyncio
import linecache
import socket
from typing import Any

SOURCE = "gpusched-kernel-source"
"""What a worker reports of a kernel's source."""
LIMIT = "gpusched-limit"
"""What a worker reports of its machine."""

LONGEST = 200_000
"""Characters of a source at most."""


async def tell_source(name: str, device: str, dask_worker: Any) -> None:
    """Report to the scheduler the source of a kernel that has run here.

    Parameters
    ----------
    name, device
        The kernel, and ``"cpu"`` or ``"cuda"``.
    dask_worker
        The worker, which distributed gives.
    """
    source = source_of(name, device)
    dask_worker.batched_stream.send(
        {"op": SOURCE, "name": name, "device": device, "source": source[:LONGEST]}
    )


def source_of(name: str, device: str) -> str:
    """Return the source of a kernel of this process; empty if none is known by that name."""
    from gpusched.backends.cache import kernels, prepare

    if device != "cpu":
        return "".join(linecache.getlines(f"<gpusched {device} {name}>"))
    for kernel in kernels:
        if kernel.name == name:
            return prepare(kernel).source
    return ""


async def tell_limit(device: str, measure: bool, dask_worker: Any) -> None:
    """Report to the scheduler how many bytes per second a device can move.

    Parameters
    ----------
    device
        ``"cpu"`` or ``"cuda"``.
    measure
        Whether it may be measured now, which takes a quarter of a second, and is right only
        where nothing else runs; if not, it is reported only where that was done before.
    dask_worker
        The worker, which distributed gives.
    """
    from gpusched.profiling.memory_bandwidth import known_limit_of, limit_of

    found = await asyncio.to_thread(limit_of if measure else known_limit_of, device)
    told = None if found is None else [found.one, found.all]
    dask_worker.batched_stream.send(
        {"op": LIMIT, "host": socket.gethostname(), "device": device, "limit": told}
    )
