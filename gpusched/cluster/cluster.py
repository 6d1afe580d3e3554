"""A cluster on this machine, pinned to GPUs where there are any."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Nanny, Scheduler, Worker
from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.spec import SpecCluster
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from gpusched import config, settings
from gpusched.cluster.allocation import (
    GpuRequest,
    MemoryLimit,
    allocate_mixed,
    check_fits,
    most_workers,
)
from gpusched.cluster.listening import check_dashboard_address, check_free, check_host
from gpusched.cluster.plain_clients import PlainClients
from gpusched.cluster.specs import worker_options
from gpusched.cluster.without_http import SilentScheduler, SilentWorker
from gpusched.dashboard.on_demand import show_on_demand
from gpusched.dashboard.page_registration import PAGE, offer
from gpusched.quantities import count, read_count
from gpusched.workers.nanny import DeviceNanny
from gpusched.workers.pool import read_request


class Cluster(SpecCluster):
    """A scheduler and workers on this machine, with fusion switched on.

    Each GPU gets one worker process, which sees that GPU alone. Without a GPU, CPU workers share
    the cores. An argument left out is taken from the configuration under ``gpusched.cluster``.

    Parameters
    ----------
    n_workers : int, optional
        Number of workers. Default: one per GPU; on CPUs, dask's own choice for the cores.
    threads_per_worker : int, optional
        Threads of each worker. Default: an equal share of the cores.
    gpus : int, str or sequence of int or str, optional
        ``"all"``, a number of GPUs, or a list of positions among the visible ones and of UUIDs,
        each as often as it should have workers; 0 for CPU workers.
    memory_limit : int, float or str, optional
        Host memory of each worker: bytes, a string such as ``"4 GiB"``, a fraction of the
        machine's, ``"auto"`` for an equal share, or 0 for no limit.
    device_memory_limit : int, float or str, optional
        What task results may take of each GPU before they are spilled: bytes, a string such as
        ``"10 GiB"``, a fraction of its memory, or 0 for no limit. Several workers on it share it.
    pool : {'none', 'cupy', 'async', 'rmm'}, optional
        Where GPU memory comes from.
    pool_size : int or str, optional
        Bytes of the pool.
    pin : bool, optional
        Whether workers are bound to cores: to those near their GPU, or CPU workers to a slice
        each. Default: GPU workers are.
    cpu_workers : int
        Number of CPU workers besides those on GPUs, named ``cpu-0`` and so on. They have the
        resource ``CPU``, as GPU workers have ``GPU``, so that ``dask.annotate(resources={"CPU":
        1})`` places tasks on them.
    processes : bool
        Whether workers are processes of their own, restarted when they die. If not, everything
        runs in this process and no socket is opened.
    fuse : bool, optional
        Whether fusion is on in this process, and in the workers, while the cluster is open.
    dashboard_address : str or bool, optional
        Where the scheduler shows its dashboard, such as ``":8787"``, or False for nowhere. Default,
        and True: on any free port of this machine, where it starts when somebody opens
        `dashboard_link`; nowhere if connections are encrypted, or without processes.
    asynchronous : bool
        Whether the cluster is used within ``async`` functions.
    name : str, optional
        The name that the cluster shows.
    host : str
        The address that the servers listen on.
    port : int
        The scheduler's port; 0 for any that is free.
    security : distributed.Security, optional
        Certificates for encrypted connections.
    silence_logs, loop : object, optional
        As of `distributed.SpecCluster`.
    worker_options : mapping of str to object, optional
        Further keyword arguments of ``distributed.Worker``.

    Raises
    ------
    ValueError
        If an argument is out of range, cannot be read, or contradicts another.
    NoDeviceError
        If GPUs are asked for that this machine does not have.
    PortError
        If the port is taken, or this user may not listen on it.

    Notes
    -----
    Methods may be called from any thread. Closing is idempotent.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from gpusched import Cluster
    >>> with Cluster(processes=False) as cluster, Client(cluster) as client:
    ...     int(da.ones(10, chunks=5).sum().compute())
    10
    """

    def __init__(
        self,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        *,
        gpus: GpuRequest | None = None,
        memory_limit: MemoryLimit | None = None,
        device_memory_limit: MemoryLimit | None = None,
        pool: str | None = None,
        pool_size: str | int | None = None,
        pin: bool | None = None,
        cpu_workers: int = 0,
        processes: bool = True,
        fuse: bool | None = None,
        dashboard_address: str | bool | None = None,
        asynchronous: bool = False,
        name: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        security: Security | None = None,
        silence_logs: int | bool = logging.WARNING,
        loop: Any = None,
        worker_options: Mapping[str, Any] | None = None,
    ) -> None:
        settings.check()
        check_host("host", host)
        port = read_count("port", port, most=2**16 - 1)
        if port and processes:
            check_free("port", port, host)
        if pool is not None or pool_size is not None:
            read_request(pool or config.get("worker.pool"), pool_size)
        if (gpus or cpu_workers) and not processes:
            raise ValueError("pinning workers to GPUs takes processes: leave out processes=False")
        self.allocation, self._cpu_allocation = allocate_mixed(
            cpu_workers,
            workers=n_workers,
            threads=threads_per_worker,
            gpus=gpus,
            memory_limit=memory_limit,
            processes=processes,
            device_memory_limit=device_memory_limit,
            pin=pin,
        )
        self.processes = processes
        self.fuse: bool = config.get("fusion.enabled") if fuse is None else fuse
        self._fuses_clients = self.fuse
        self._fusion = contextlib.ExitStack()
        security = security or Security()
        shown = dashboard_address
        if shown is None:
            shown = config.get("cluster.dashboard-address")
        if shown is True:
            shown = None
        if shown is not None and shown is not False:
            check_dashboard_address("dashboard_address", shown)
        # Whoever reaches a dashboard sees what runs, which is not asked for with certificates.
        self._dashboard_on_demand = shown is None and processes and not security.require_encryption
        address = {
            "protocol": _protocol(processes, security),
            "host": host if processes else None,
        }
        self._worker_options = {
            **address,
            "pool": pool,
            "pool_size": pool_size,
            "security": security,
            "silence_logs": silence_logs,
            "dashboard": False,
            **(worker_options or {}),
        }
        # Scaling down takes the last ones first, which must be those on GPUs.
        workers = {f"cpu-{index}": self._cpu_spec(index) for index in range(cpu_workers)} | {
            index: self._worker_spec(index) for index in range(self.allocation.workers)
        }
        super().__init__(
            scheduler=_scheduler_spec(address, port, security, shown or None, processes),
            workers=workers,
            worker=self._worker_spec(0),
            asynchronous=asynchronous,
            loop=loop,
            security=security,
            silence_logs=silence_logs,
            name=name,
        )

    def _worker_spec(self, index: int) -> dict[str, Any]:
        options = worker_options(self.allocation, index, **self._worker_options)
        if self.processes:
            return {"cls": DeviceNanny, "options": options}
        # What a process starts with has no meaning where none is started.
        del options["env"], options["cpus"]
        return {"cls": SilentWorker, "options": options}

    def _cpu_spec(self, index: int) -> dict[str, Any]:
        assert self._cpu_allocation is not None
        options = worker_options(self._cpu_allocation, index, **self._worker_options)
        resources = {"CPU": float(self._cpu_allocation.threads), **(options.get("resources") or {})}
        return {"cls": DeviceNanny, "options": {**options, "resources": resources}}

    def new_worker_spec(self) -> dict[int, dict[str, Any]]:
        """Return the lowest free worker name and what that worker is started with."""
        name = next(number for number in itertools.count() if number not in self.worker_spec)
        self._check_devices(name + 1)
        return {name: self._worker_spec(name)}

    def scale(self, n: int = 0, memory: Any = None, cores: Any = None) -> Any:
        """Change the number of workers to ``n``, or to what gives ``memory`` or ``cores``.

        CPU workers besides those on GPUs stay, and are not counted.

        Raises
        ------
        ValueError
            If there are fewer GPUs than workers.
        """
        self._check_devices(n)
        # Closing scales to nothing, and means all of them.
        beside = self._cpu_allocation if self.status != Status.closing else None
        n += beside.workers if beside else 0
        return super().scale(n, memory=memory, cores=cores)

    def adapt(
        self,
        Adaptive: type[Adaptive] = Adaptive,
        minimum: float = 0,
        maximum: float = math.inf,
        *args: Any,
        **kwargs: Any,
    ) -> Adaptive:
        """Change the number of workers with the load; never more than one per GPU.

        Raises
        ------
        ValueError
            If there are CPU workers besides those on GPUs, between which it could not choose.
        """
        if self._cpu_allocation is not None:
            raise ValueError("a cluster with cpu_workers cannot adapt: scale it, or leave them out")
        if self.allocation.devices:
            maximum = min(maximum, len(self.allocation.devices))
        if self.processes:
            maximum = min(maximum, most_workers())
        return super().adapt(Adaptive, minimum, maximum, *args, **kwargs)

    def close_now(self) -> None:
        """Close without waiting for tasks that still run; their processes are killed."""
        if self.status != Status.closed:
            self.sync(self._kill_workers)
            self.close()

    async def _kill_workers(self) -> None:
        with silence_logging_cmgr(level=logging.ERROR, root="distributed"):
            await asyncio.gather(*(_kill(worker) for worker in self.workers.values()))

    def _check_devices(self, workers: int) -> None:
        devices = len(self.allocation.devices)
        if devices and workers > devices:
            raise ValueError(
                f"for {count(devices, 'GPU')} there are at most {count(devices, 'worker')}"
            )
        if self.processes:
            check_fits(workers)

    def _update_worker_status(self, op: str, msg: Any) -> None:
        name = self.scheduler_info["workers"][msg]["name"] if op == "remove" else None
        node = self.workers.get(name)
        if not isinstance(node, Nanny):
            super()._update_worker_status(op, msg)
            return
        # distributed closes a nanny whose worker is missing when some time has passed, although it
        # may be starting it again, which takes long on a busy machine.
        self._look_for(name, node)
        super(SpecCluster, self)._update_worker_status(op, msg)

    def _look_for(self, name: Any, nanny: Nanny) -> None:
        """Close a nanny, once it no longer tries to bring a lost worker back."""

        def look() -> None:
            present = (worker["name"] for worker in self.scheduler_info["workers"].values())
            if self.workers.get(name) is not nanny or name in present:
                return
            if nanny.status == Status.running:
                self._look_for(name, nanny)
                return
            self._futures.add(asyncio.ensure_future(nanny.close()))
            del self.workers[name]

        delay = parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout"))
        asyncio.get_running_loop().call_later(delay, look)

    async def _start(self) -> None:
        # Before the workers start, because they start with this process's configuration.
        if self.fuse:
            from gpusched.graph import enable

            self._fusion.enter_context(enable())
            self.fuse = False
        # Again, since what was set for an earlier one may have been taken back with a block of
        # `dask.config.set` around that.
        offer()
        await super()._start()
        assert self.scheduler is not None
        self.scheduler.plugins[PlainClients.name].enabled = self._fuses_clients
        if self._dashboard_on_demand:
            show_on_demand(self.scheduler)

    @property
    def dashboard_link(self) -> str:
        """The address of gpusched's pages on the dashboard; empty if there is none."""
        shown = self._dashboard_on_demand or self.scheduler_spec["options"]["dashboard"]
        return re.sub("/status$", f"/{PAGE}", super().dashboard_link) if shown else ""

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            self._fusion.close()


async def _kill(worker: Nanny | Worker) -> None:
    if isinstance(worker, Worker):
        await worker.close(timeout=0.2, executor_wait=False)
        return
    worker.close_gracefully()
    scratch = worker.worker_dir
    started = worker.process and worker.process.process
    if started is not None:
        await started.kill()
    await worker.close(timeout=1)
    if scratch:
        # The nanny removes the folder; its lock is the worker's, who cannot any more.
        Path(f"{scratch}.dirlock").unlink(missing_ok=True)


def _protocol(processes: bool, security: Security) -> str:
    if not processes:
        return "inproc://"
    return "tls://" if security.require_encryption else "tcp://"


def _scheduler_spec(
    address: dict[str, Any],
    port: int,
    security: Security,
    shown: Any,
    processes: bool,
) -> dict[str, Any]:
    silent = not processes and not shown
    options = {
        **address,
        "port": port,
        "security": security,
        "dashboard": bool(shown),
        "dashboard_address": shown or "127.0.0.1:0",
        "preload": [
            *dask.config.get("distributed.scheduler.preload"),
            "gpusched.cluster.scheduler",
        ],
    }
    return {"cls": SilentScheduler if silent else Scheduler, "options": options}
