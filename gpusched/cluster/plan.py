"""How many workers a cluster gets, and what each of them is given: decided before any starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import dask.system
import distributed.system
from dask.utils import parse_bytes
from distributed.deploy.utils import nprocesses_nthreads

from gpusched import config
from gpusched.workers.devices import ENVIRONMENT_VARIABLE, select_devices, visible_devices

GpuRequest = str | int | Sequence[int]
MemoryLimit = str | float | int


@dataclass(frozen=True)
class Plan:
    """What a cluster's workers are given."""

    workers: int
    """Number of workers to start with."""
    threads: int
    """Threads of each worker."""
    memory_limit: int
    """Bytes of host memory of each worker; 0 for no limit."""
    devices: tuple[str, ...]
    """The GPU of each worker, as an entry for CUDA_VISIBLE_DEVICES; empty for CPU workers."""

    def environment(self, worker: int) -> dict[str, str]:
        """Return the environment variables that the given worker starts with."""
        return {ENVIRONMENT_VARIABLE: self.devices[worker] if self.devices else ""}


def plan(
    workers: int | None = None,
    threads: int | None = None,
    gpus: GpuRequest | None = None,
    memory_limit: MemoryLimit | None = None,
    processes: bool = True,
) -> Plan:
    """Decide what workers to start; None asks the configuration, then the machine.

    Raises
    ------
    ValueError
        If a number is out of range, cannot be read, or contradicts another.
    NoDeviceError
        If GPUs are asked for that this machine does not have.

    Examples
    --------
    >>> from gpusched.cluster.plan import plan
    >>> plan(workers=2, threads=3, gpus=0, memory_limit="1 GiB")
    Plan(workers=2, threads=3, memory_limit=1073741824, devices=())
    """
    workers = _count("workers", config.get("cluster.workers") if workers is None else workers, 0)
    threads = _count("threads", config.get("cluster.threads") if threads is None else threads, 1)
    devices = _devices(gpus, workers) if processes else ()
    if devices:
        workers, threads = len(devices) if workers is None else workers, threads or 1
    elif processes:
        workers, threads = _share_cores(workers, threads)
    else:
        workers = 1 if workers is None else workers
        threads = threads or max(1, dask.system.CPU_COUNT // max(1, workers))
    if memory_limit is None:
        memory_limit = config.get("cluster.memory-limit")
    return Plan(workers, threads, _memory(memory_limit, max(1, workers)), tuple(devices))


def _count(what: str, value: int | None, least: int) -> int | None:
    if value is not None and value < least:
        raise ValueError(f"the number of {what} must be at least {least}, not {value}")
    return value


def _devices(request: GpuRequest | None, workers: int | None) -> Sequence[str]:
    request = config.get("cluster.gpus") if request is None else request
    if request == 0 or request == []:
        return ()
    visible = visible_devices()
    if request is None and not visible:
        return ()
    if request is None:
        request = "all" if workers is None else min(workers, len(visible))
        if request == 0:
            request = "all"
    devices = select_devices(request, visible)
    if workers is not None and workers > len(devices):
        raise ValueError(
            f"{workers} workers were asked for and {len(devices)} GPUs: each GPU has one worker"
        )
    return devices


def _share_cores(workers: int | None, threads: int | None) -> tuple[int, int]:
    cores = dask.system.CPU_COUNT
    if workers is None and threads is None:
        return nprocesses_nthreads(cores)
    if workers is None:
        assert threads is not None
        return max(1, cores // threads), threads
    return workers, threads or max(1, math.ceil(cores / max(1, workers)))


def _memory(limit: MemoryLimit, workers: int) -> int:
    total = distributed.system.MEMORY_LIMIT
    if limit == "auto":
        return total // workers
    try:
        number = float(limit)
    except ValueError:
        number = _bytes(str(limit))
    if not 0 <= number < math.inf:
        raise ValueError(f"a memory limit cannot be {limit}")
    share = isinstance(limit, float | str) and 0 < number <= 1
    # One that exceeds the machine is distributed's to warn of, and to cut.
    return int(number * total if share else number)


def _bytes(text: str) -> float:
    try:
        # dask reads a unit alone, or nothing, as one of it.
        if not any(character.isdecimal() for character in text):
            raise ValueError
        return float(parse_bytes(text))
    except ValueError:
        raise ValueError(
            f"cannot read {text!r} as a memory limit: write bytes such as '4 GiB', a fraction of "
            f"this machine's memory such as '0.25', 'auto', or 0 for no limit"
        ) from None
