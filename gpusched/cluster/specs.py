"""What a worker is started with: the same from the command line and from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusched import config
from gpusched.cluster.allocation import Allocation
from gpusched.workers.pool import read_request


def worker_options(
    allocation: Allocation,
    index: int,
    *,
    pool: str | None = None,
    pool_size: str | int | None = None,
    fuse: bool | None = False,
    **options: Any,
) -> dict[str, Any]:
    """Return the keyword arguments of `DeviceNanny` for one worker of an allocation.

    Raises `ValueError` if the pool's kind or size cannot be read.

    Parameters
    ----------
    allocation
        What the workers are given.
    index
        Which of the workers.
    pool, pool_size
        Where GPU memory comes from; None asks the configuration.
    fuse
        Whether to switch fusion on in the worker's process, for what tasks compute with dask
        there; None asks the configuration. Without it the worker does as this process does.
    **options
        Arguments of `distributed.Nanny` and `distributed.Worker`, which win over the allocation's.

    Examples
    --------
    >>> from gpusched.cluster.allocation import allocate
    >>> from gpusched.cluster.specs import worker_options
    >>> worker_options(allocate(2, 1, gpus=0), 0)["env"]
    {'CUDA_VISIBLE_DEVICES': ''}
    """
    slot = allocation.slot(index)
    given_env = options.pop("env", None) or {}
    found = {
        "nthreads": allocation.threads,
        "memory_limit": allocation.memory_limit,
        "env": {**allocation.environment(index), **given_env},
        "cpus": slot.cpus,
        **options,
    }
    if config.get("fusion.enabled") if fuse is None else fuse:
        found["config"] = {**fusing(), **(options.get("config") or {})}
    if slot.device:
        kind = pool or config.get("worker.pool")
        size = config.get("worker.pool-size") if pool_size is None else pool_size
        found |= {
            "gpu": True,
            "device_uuid": slot.uuid,
            "device_memory_limit": slot.device_memory_limit,
            "pool": kind,
            "pool_size": read_request(kind, size),
            "resources": gpu_resources(options.get("resources")),
        }
    return found


def fusing() -> dict[str, Any]:
    """Return the settings of dask that switch fusion on in a worker's process.

    Examples
    --------
    >>> from gpusched.cluster.specs import fusing
    >>> list(fusing())
    ['array_optimize']
    """
    from gpusched.graph import optimize

    return {"array_optimize": optimize}


def gpu_resources(given: Mapping[str, float] | None) -> dict[str, float]:
    """Return a GPU worker's resources: one GPU, unless given otherwise, and those given.

    Examples
    --------
    >>> from gpusched.cluster.specs import gpu_resources
    >>> gpu_resources({"MEMORY": 10.0})
    {'GPU': 1.0, 'MEMORY': 10.0}
    """
    return {"GPU": 1.0, **(given or {})}
