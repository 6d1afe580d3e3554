"""How many workers a cluster gets, and what each of them is given: decided before any starts."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.system
import distributed.system
from dask.utils import format_bytes, parse_bytes
from distributed.deploy.utils import nprocesses_nthreads

from gpusched import config
from gpusched.quantities import count, read_count
from gpusched.workers import affinity, nvml
from gpusched.workers.visible_gpus import (
    ENVIRONMENT_VARIABLE,
    NoDeviceError,
    Request,
    select_devices,
    visible_devices,
)

logger = logging.getLogger(__name__)

LEAST_MEMORY = 192 << 20
"""Bytes of host memory that a worker process needs: an idle one takes 130 MiB, of which its nanny
allows it 95 % (Python 3.11 on Linux, measured 2026-11-25; 270 MiB with numba's compiler)."""

MOST_THREADS = 4096
"""Threads of one worker: more than cores that one process can use."""

GpuRequest = Request
MemoryLimit = str | float | int


@dataclass(frozen=True)
class Slot:
    """Where one worker runs."""

    device: str = ""
    """Its GPU, as an entry for CUDA_VISIBLE_DEVICES; empty for a CPU worker."""
    uuid: str = ""
    """The GPU's UUID; empty where NVML does not report."""
    share: int = 1
    """Number of workers on that GPU."""
    device_memory_limit: int = 0
    """Bytes that results may take on the GPU; 0 for no limit."""
    cpus: tuple[int, ...] = ()
    """The cores that the worker is bound to; empty for no binding."""


@dataclass(frozen=True)
class Allocation:
    """What a cluster's workers are given."""

    workers: int
    """Number of workers to start with."""
    threads: int
    """Threads of each worker."""
    memory_limit: int
    """Bytes of host memory of each worker; 0 for no limit."""
    slots: tuple[Slot, ...]
    """Where workers run: one per GPU worker; CPU workers take them in turn."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPU of each worker, as an entry for CUDA_VISIBLE_DEVICES; empty for CPU workers."""
        return tuple(slot.device for slot in self.slots if slot.device)

    def slot(self, worker: int) -> Slot:
        """Return where the given worker runs."""
        return self.slots[worker % len(self.slots)]

    def environment(self, worker: int) -> dict[str, str]:
        """Return the environment variables that the given worker starts with."""
        device = self.slot(worker).device
        # An index is one in NVML's order, while CUDA on its own puts the fastest GPU first.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if device.isdecimal() else {}
        return {ENVIRONMENT_VARIABLE: device, **order, **(sharing() if device else {})}


_SHARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Variables by which JAX and TensorFlow take GPU memory as they need it, unless they say otherwise.

By itself JAX takes three quarters of the GPU with its first array, and TensorFlow all of it: chunks
would have no room beside a model. See https://docs.jax.dev/en/latest/gpu_memory_allocation.html.
"""


def sharing() -> dict[str, str]:
    """Return the variables that leave chunks room beside models; not those that are set already.

    Examples
    --------
    >>> from gpusched.cluster.allocation import sharing
    >>> "CUDA_VISIBLE_DEVICES" in sharing()
    False
    """
    return {name: value for name, value in _SHARING.items() if name not in os.environ}


def allocate(
    workers: int | None = None,
    threads: int | None = None,
    gpus: GpuRequest | None = None,
    memory_limit: MemoryLimit | None = None,
    processes: bool = True,
    device_memory_limit: MemoryLimit | None = None,
    pin: bool | None = None,
) -> Allocation:
    """Decide what workers to start; None asks the configuration, then the machine.

    Raises `ValueError` if a number is out of range, cannot be read, or contradicts another;
    `NoDeviceError` if GPUs are asked for that this machine does not have.

    Examples
    --------
    >>> from gpusched.cluster.allocation import allocate
    >>> allocate(workers=2, threads=3, gpus=0, memory_limit="1 GiB", pin=False).slots
    (Slot(device='', uuid='', share=1, device_memory_limit=0, cpus=()),)
    """
    workers = _count("workers", workers, 0)
    threads = _count("threads", threads, 1, MOST_THREADS)
    devices = _devices(gpus, workers) if processes else ()
    if devices:
        workers = len(devices) if workers is None else workers
        threads = threads or _threads_of(workers)
    elif processes:
        workers, threads = _share_cores(workers, threads)
    else:
        workers = 1 if workers is None else workers
        threads = threads or _threads_of(workers)
    if memory_limit is None:
        memory_limit = config.get("cluster.memory-limit")
    if device_memory_limit is None:
        device_memory_limit = config.get("worker.device-memory-limit")
    # A limit that cannot be read is an error also where no GPU is there to be limited.
    device_memory(device_memory_limit, 0)
    pin = _pin(config.get("worker.pin") if pin is None else pin)
    if devices:
        slots = _gpu_slots(devices, device_memory_limit, pin is not False)
    else:
        slots = _cpu_slots(workers, bool(pin) and processes)
    if processes:
        check_fits(workers)
    return Allocation(workers, threads, host_memory(memory_limit, max(1, workers)), slots)


def most_workers() -> int:
    """Return how many worker processes this machine has memory for, if they do nothing."""
    return max(1, distributed.system.MEMORY_LIMIT // LEAST_MEMORY)


def check_fits(workers: int) -> None:
    """Refuse more worker processes than this machine has memory for, even if they do nothing.

    Raises `ValueError` if they do not fit.
    """
    if workers > most_workers():
        total = format_bytes(distributed.system.MEMORY_LIMIT)
        raise ValueError(
            f"{workers} workers do not fit into the {total} of memory here, since each takes "
            f"{format_bytes(LEAST_MEMORY)} before its first task: ask for at most {most_workers()}"
        )


def allocate_mixed(cpu_workers: int, **arguments: Any) -> tuple[Allocation, Allocation | None]:
    """Decide on workers as `allocate` does, and on so many CPU workers besides those on GPUs.

    Raises `ValueError` if there are CPU workers only, so that there is nothing to be besides; or as
    `allocate`.

    Examples
    --------
    >>> from gpusched.cluster.allocation import allocate_mixed
    >>> allocate_mixed(0, workers=1, threads=1, gpus=0)[1] is None
    True
    """
    found = allocate(**arguments)
    if not read_count("the number of CPU workers", cpu_workers):
        return found, None
    if _count("threads", arguments.get("threads"), 1) is None:
        found = replace(found, threads=_threads_of(found.workers + cpu_workers))
    if not found.devices:
        raise ValueError(
            f"cpu_workers={cpu_workers} is for clusters with GPUs; here all workers are CPU "
            f"workers, of which n_workers gives the number"
        )
    limit = arguments.get("memory_limit")
    limit = config.get("cluster.memory-limit") if limit is None else limit
    memory = host_memory(limit, found.workers + cpu_workers)
    beside = allocate(cpu_workers, found.threads, 0, memory, pin=False)
    return replace(found, memory_limit=memory), beside


def _gpu_slots(devices: Sequence[str], limit: MemoryLimit, pin: bool) -> tuple[Slot, ...]:
    shares = Counter(devices)
    made = {}
    for device, share in shares.items():
        facts = _facts(device)
        made[device] = Slot(
            device,
            facts.uuid if facts else "",
            share,
            device_memory(limit, facts.memory_total if facts else 0, share),
            _cores(device, facts.cpus) if pin and facts else (),
        )
    return tuple(made[device] for device in devices)


def _facts(device: str) -> nvml.GpuFacts | None:
    try:
        return nvml.facts(device)
    except nvml.UnknownDeviceError as error:
        raise NoDeviceError(f"no such GPU: {device}; {error}") from error


def _cores(device: str, near: Sequence[int]) -> tuple[int, ...]:
    if not near:
        return ()
    cores, reason = affinity.choose(near, affinity.allowed_cpus())
    if reason:
        logger.warning("the worker of GPU %s is not bound to the cores near it: %s", device, reason)
    return cores


def _cpu_slots(workers: int, pin: bool) -> tuple[Slot, ...]:
    if not pin:
        return (Slot(),)
    cores = affinity.slices(affinity.allowed_cpus(), max(1, workers))
    return tuple(Slot(cpus=cpus) for cpus in cores)


def _pin(value: object) -> bool | None:
    if value is None:
        return None
    if value in (True, False):
        return bool(value)
    raise ValueError(f"cannot read worker.pin {value!r}: write true, false or null")


def _count(key: str, value: int | None, least: int, most: int | None = None) -> int | None:
    """Read a number of workers or threads; None asks the configuration."""
    what = f"the number of {key}"
    if value is None:
        what, value = f"gpusched.cluster.{key}", config.get(f"cluster.{key}")
    return None if value is None else read_count(what, value, least, most)


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
            f"{workers} workers were asked for and {count(len(devices), 'GPU')}: name each GPU as "
            f"often as it is to have workers, as in 0,0,1,1"
        )
    return devices


def _threads_of(workers: int) -> int:
    """Return the threads of each worker: a GPU's has its share of the cores to read chunks, too.

    On an H200 beside 16 cores, programs that make 1 GB of chunks on the host take 1.3 to 1.7 s with
    one thread, 0.5 to 0.6 s with 4 and 0.3 to 0.4 s with 16; from chunks on the GPU the same with
    any number (measured 2026-11-26).
    """
    return max(1, dask.system.CPU_COUNT // max(1, workers))


def _share_cores(workers: int | None, threads: int | None) -> tuple[int, int]:
    cores = dask.system.CPU_COUNT
    if workers is None and threads is None:
        return nprocesses_nthreads(cores)
    if workers is None:
        assert threads is not None
        return max(1, cores // threads), threads
    return workers, threads or max(1, math.ceil(cores / max(1, workers)))


def host_memory(limit: MemoryLimit, workers: int) -> int:
    """Return the bytes of host memory that each of so many workers may take; 0 for no limit.

    Raises `ValueError` if the limit cannot be read, or is less than a worker needs that does
    nothing.

    Examples
    --------
    >>> from gpusched.cluster.allocation import host_memory
    >>> host_memory("1 GiB", 4)
    1073741824
    """
    total = distributed.system.MEMORY_LIMIT
    # One that exceeds the machine is distributed's to warn of, and to cut.
    if limit == "auto":
        return total // workers
    found = _bytes_of(limit, total, "memory limit")
    if 0 < found < LEAST_MEMORY:
        raise ValueError(
            f"a memory limit of {limit!r} is {format_bytes(found)}, and a worker takes "
            f"{format_bytes(LEAST_MEMORY)} before its first task: write at least that, with its "
            f"unit, as in '4 GiB', or 0 for no limit"
        )
    return found


def device_memory(limit: MemoryLimit, total: int, share: int = 1) -> int:
    """Return the bytes of a GPU that each of its workers may fill with results; 0 for no limit.

    Raises `ValueError` if the limit cannot be read.

    Parameters
    ----------
    limit
        Bytes, a string such as ``"10 GiB"``, a fraction of the GPU's memory, or 0 for no limit.
    total
        The GPU's memory in bytes; 0 where unknown, and then a fraction is not a limit.
    share
        Number of workers on that GPU.

    Examples
    --------
    >>> from gpusched.cluster.allocation import device_memory
    >>> device_memory("1 GiB", 80 * 2**30, 2), device_memory(0.5, 1000)
    (536870912, 500)
    """
    return _bytes_of(limit, total, "device memory limit") // share


def _bytes_of(limit: MemoryLimit, total: int, what: str) -> int:
    try:
        number = float(limit)
    except (TypeError, ValueError):
        number = _bytes(str(limit), what)
    if not 0 <= number < math.inf:
        raise ValueError(f"a {what} cannot be {limit}")
    share = isinstance(limit, float | str) and 0 < number <= 1
    return int(number * total if share else number)


def _bytes(text: str, what: str) -> float:
    try:
        # dask reads a unit alone, or nothing, as one of it.
        if not any(character.isdecimal() for character in text):
            raise ValueError
        return float(parse_bytes(text))
    except ValueError:
        auto = "'auto', " if what == "memory limit" else ""
        raise ValueError(
            f"cannot read {text!r} as a {what}: write bytes such as '4 GiB', a fraction of "
            f"the memory there is such as '0.25', {auto}or 0 for no limit"
        ) from None
