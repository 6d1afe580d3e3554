"""Where a worker's memory comes from: the GPU's pool, or the host's chunk buffers.

Nothing is allocated through the driver where a pool has a free block, so tasks do not wait for it.
Importing this package imports neither CuPy nor RMM.
"""

from __future__ import annotations

import sys
from typing import Any

from gpusched import installing
from gpusched.workers.pool.base import Pool
from gpusched.workers.pool.device_pools import AsyncPool, CupyPool, NoPool, RmmPool
from gpusched.workers.pool.host import HostPool
from gpusched.workers.pool.pool_options import KINDS, check_fits, read_request

__all__ = ["KINDS", "HostPool", "Pool", "install", "read_request"]

_UNLIMITED = sys.maxsize


def install(kind: str, size: int | str | None = None) -> Pool:
    """Make CuPy take all device memory of this process from a pool.

    Raises `ValueError` if the kind is unknown, or the size cannot be read or does not fit the
    device; `ImportError` if the kind's library is not installed.

    Parameters
    ----------
    kind
        ``none`` asks the driver for each array; ``cupy`` is CuPy's own pool; ``async`` is the
        driver's, by ``cudaMallocAsync``; ``rmm`` is RMM's, which never gives memory back.
    size
        Bytes, or text such as ``"8 GiB"``. The ``cupy`` pool takes at most that much, ``async``
        keeps at most that much between tasks, and ``rmm`` takes it at once and grows from there.
        None bounds nothing, and takes nothing before it is needed.

    Examples
    --------
    >>> from gpusched.workers.pool import install
    >>> install("jemalloc")
    Traceback (most recent call last):
        ...
    ValueError: --pool jemalloc is none of 'none', 'cupy', 'async', 'rmm'
    """
    size = read_request(kind, size)
    cupy = _import_cupy(kind)
    if size is not None:
        check_fits(kind, size, *cupy.cuda.runtime.memGetInfo())
    if kind == "rmm":
        return RmmPool(cupy, _import_rmm(cupy), size or 0)
    if kind == "async":
        return AsyncPool(cupy, size or _UNLIMITED)
    if kind == "cupy":
        return CupyPool(cupy, size or 0)
    return NoPool(cupy)


def _import_cupy(kind: str) -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"--pool {kind} needs CuPy ({error}): {installing.command('cuda13')}, or "
            f"its extra cuda12 for drivers of CUDA 12",
            name="cupy",
        ) from error
    return cupy


def _import_rmm(cupy: Any) -> Any:
    try:
        import rmm
        import rmm.allocators.cupy
    except ImportError as error:
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        raise ImportError(
            f"--pool rmm needs RMM ({error}): pip install rmm-cu{major}", name="rmm"
        ) from error
    return rmm
