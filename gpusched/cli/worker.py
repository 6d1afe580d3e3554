"""``gpusched worker``: one worker per GPU of this machine, or CPU workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import dask.config
from distributed.cli import dask_worker

from gpusched import __version__, config
from gpusched.adapters.distributed import worker_ports
from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.options import (
    adopted,
    certificate_files,
    check_network,
    check_ports,
    check_worker_flags,
    check_written,
    read_gpus,
    read_resources,
    tls_flag,
    worker_flags,
)
from gpusched.quantities import read_seconds

if TYPE_CHECKING:
    from gpusched.cluster.allocation import Allocation
    from gpusched.cluster.serve import Node

_CLASS = "gpusched.workers.worker.DeviceWorker"
_PASSED_ON = (
    "contact_address",
    "dashboard",
    "dashboard_address",
    "host",
    "interface",
    "lifetime",
    "lifetime_restart",
    "lifetime_stagger",
    "local_directory",
    "pool",
    "pool_size",
    "preload",
    "preload_argv",
    "protocol",
    "scheduler_sni",
)
"""Flags that are arguments of workers under the same name."""


@click.command(
    params=adopted(
        dask_worker.main,
        ["dashboard_prefix", "version"],
        {"memory_limit": None, "worker_class": _CLASS},
    ),
    context_settings=dask_worker.main.context_settings,
)
@worker_flags
@tls_flag
@click.version_option(__version__, prog_name="gpusched")
def worker(scheduler: str | None, scheduler_file: str | None, **flags: Any) -> None:
    """Start workers for SCHEDULER, one per GPU of this machine.

    Where there is no GPU, and with --cpu, one CPU worker gets all cores, or --workers share them.
    Ends when the scheduler does, or on Ctrl-C or SIGTERM; no process stays behind.
    """
    from gpusched.cluster.contact import NoSchedulerError
    from gpusched.cluster.listening import PortError
    from gpusched.cluster.serve import StartError, serve
    from gpusched.workers.visible_gpus import NoDeviceError

    try:
        flags = certificate_files(flags)
        _check(flags)
        address = _address(scheduler, scheduler_file, flags)
        workers = _workers(flags)
        with _pid_file(flags["pid_file"]):
            serve(lambda: _make(address, scheduler_file, workers, flags))
    except ValueError as error:
        raise Unusable(str(error)) from None
    except NoDeviceError as error:
        raise Failed(error.of_command()) from None
    except (NoSchedulerError, PortError, StartError) as error:
        raise Failed(str(error)) from None


def _check(flags: dict[str, Any]) -> None:
    from gpusched.cluster.certificates import check_key
    from gpusched.cluster.listening import check_dashboard_address, check_host

    check_worker_flags(flags)
    check_network(flags["interface"], flags["protocol"])
    check_host("--host", flags["host"])
    check_dashboard_address("--dashboard-address", flags["dashboard_address"])
    check_key(flags["tls_key"])
    check_written("--pid-file", flags["pid_file"])
    for name in ("death_timeout", "lifetime", "lifetime_stagger"):
        _seconds(name, flags[name])
    for name in ("worker_port", "nanny_port"):
        check_ports(_flag(name), flags[name])
    for name in ("listen_address", "contact_address"):
        _host_and_port(name, flags[name])
    check_host("--listen-address", flags["listen_address"])
    if flags["contact_address"] and not flags["listen_address"]:
        raise ValueError("--contact-address needs --listen-address")
    if flags["listen_address"] and (flags["worker_port"] or flags["host"]):
        raise ValueError("--listen-address excludes --worker-port and --host")


def _address(scheduler: str | None, file: str | None, flags: dict[str, Any]) -> str | None:
    if scheduler and file:
        raise ValueError("SCHEDULER and --scheduler-file exclude each other")
    if file:
        return None
    address = scheduler or dask.config.get("scheduler-address", None)
    if not address:
        raise ValueError(
            "which scheduler? Name it as in `gpusched worker tcp://10.0.0.1:8786`, or use "
            "--scheduler-file"
        )
    from gpusched.cluster.contact import check_address

    encrypted = any(flags[name] for name in ("tls_ca_file", "tls_cert", "tls_key"))
    return check_address(f"tls://{address}" if encrypted and "://" not in address else address)


def _workers(flags: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of each worker, or of its nanny."""
    made = make_allocation(flags)
    if made.workers < 1:
        raise ValueError("at least one worker must be asked for: check --workers")
    if made.workers > 1 and not flags["nanny"]:
        raise ValueError(f"--no-nanny runs one worker, not {made.workers}: use --workers 1")
    if made.workers > 1 and flags["listen_address"]:
        raise ValueError(f"--listen-address is for one worker, not {made.workers}: use --host")
    common = {name: flags[name] for name in _PASSED_ON} | _listening(flags) | {
        "death_timeout": _seconds("death_timeout", flags["death_timeout"]) or None,
        "resources": read_resources(flags["resources"]),
    }  # fmt: skip
    ports = worker_ports(
        common.pop("worker_port"), flags["nanny_port"], made.workers, flags["nanny"]
    )
    _check_free(ports, flags, common["host"])
    return [_options(made, index, flags, common | ports[index]) for index in range(made.workers)]


def _check_free(ports: list[dict[str, Any]], flags: dict[str, Any], host: str | None) -> None:
    """Check that each worker, and each nanny, could listen on one of its ports."""
    from distributed.utils import get_ip_interface

    from gpusched.cluster.listening import check_free

    if flags["interface"]:
        host = get_ip_interface(flags["interface"])
    worker = "--listen-address" if flags["listen_address"] else "--worker-port"
    names = {"worker_port": worker, "port": "--nanny-port" if flags["nanny"] else worker}
    for given in ports:
        for name, flag in names.items():
            if given.get(name):
                check_free(flag, given[name], host)


def make_allocation(flags: dict[str, Any]) -> Allocation:
    """Return what the flags of ``gpusched worker`` ask for on this machine.

    Examples
    --------
    >>> from gpusched.cli.worker import make_allocation
    >>> make_allocation({"n_workers": "2", "nthreads": 3, "gpus": None, "cpu": True, "pin": False,
    ...            "memory_limit": "1 GiB", "device_memory_limit": None}).threads
    3
    """
    from gpusched.cluster.allocation import allocate

    wanted = {
        "threads": flags["nthreads"] or None,
        "gpus": read_gpus(flags["gpus"], flags["cpu"]),
        **{name: flags[name] for name in ("memory_limit", "device_memory_limit", "pin")},
    }
    text = flags["n_workers"]
    if text == "auto":
        with dask.config.set({"gpusched.cluster.workers": None}):
            return allocate(**wanted)
    made = allocate(_number_of_workers(text), **wanted)
    if made.devices or text is not None or config.get("cluster.workers") is not None:
        return made
    return allocate(1, **wanted)


def _number_of_workers(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"cannot read --workers {text!r}: write a number, or 'auto'") from None
    cores: int = dask.system.CPU_COUNT
    return number if number >= 0 else max(0, cores + 1 + number)


def _listening(flags: dict[str, Any]) -> dict[str, Any]:
    listen = flags["listen_address"]
    if not listen:
        return {"worker_port": flags["worker_port"]}
    host, port = _host_and_port("listen_address", listen)
    return {
        "worker_port": str(port),
        "host": f"[{host}]" if ":" in host else host,
        "contact_address": flags["contact_address"] or listen,
    }


def _host_and_port(name: str, address: str | None) -> tuple[str, int]:
    from distributed.comm.addressing import get_address_host_port

    try:
        return get_address_host_port(address, strict=True) if address else ("", 0)
    except ValueError as error:
        raise ValueError(f"cannot read {_flag(name)} {address}: {error}") from None


def _seconds(name: str, text: str | None) -> float | None:
    return None if text is None else read_seconds(_flag(name), text)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _options(
    made: Allocation, index: int, flags: dict[str, Any], common: dict[str, Any]
) -> dict[str, Any]:
    from gpusched.cluster.specs import worker_options

    options = worker_options(
        made,
        index,
        fuse=flags["fuse"],
        name=_name(flags["name"], index, made.workers),
        security=_security(flags),
        **common,
    )
    if flags["nanny"]:
        options |= {
            "worker_class": _worker_class(flags["worker_class"]),
            "preload_nanny": flags["preload_nanny"],
            "listen_address": flags["listen_address"],
        }
    return options


def _name(prefix: str | None, index: int, workers: int) -> str | int | None:
    if not prefix:
        return prefix
    if workers > 1:
        return f"{prefix}-{index}"
    return int(prefix) if prefix.isdecimal() else prefix


def _security(flags: dict[str, Any]) -> dict[str, str]:
    given = {
        "tls_ca_file": flags["tls_ca_file"],
        "tls_worker_cert": flags["tls_cert"],
        "tls_worker_key": flags["tls_key"],
    }
    return {name: value for name, value in given.items() if value is not None}


def _worker_class(name: str) -> Any:
    from distributed.utils import import_term

    from gpusched.workers.worker import DeviceWorker

    try:
        found = import_term(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot import --worker-class {name}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, DeviceWorker)):
        raise ValueError(f"--worker-class {name} is not a subclass of {_CLASS}")
    return found


async def _make(
    address: str | None, file: str | None, workers: list[dict[str, Any]], flags: dict[str, Any]
) -> list[Node]:
    from gpusched.cluster.contact import find_scheduler
    from gpusched.workers.nanny import DeviceNanny

    connection = _connection(_security(flags), flags["scheduler_sni"])
    found = await find_scheduler(address, file, connection, workers[0]["death_timeout"])
    if flags["nanny"]:
        return [DeviceNanny(found, **options) for options in workers]
    os.environ.update(workers[0].pop("env"))
    dask.config.set(workers[0].pop("config", {}))
    return [_worker_class(flags["worker_class"])(found, **options) for options in workers]


def _connection(security: dict[str, str], server_name: str | None) -> dict[str, Any]:
    from distributed.security import Security

    try:
        connection: dict[str, Any] = Security(**security).get_connection_args("worker")
    except OSError as error:
        raise ValueError(f"cannot use the certificates in {security}: {error}") from None
    return connection | ({"server_hostname": server_name} if server_name else {})


@contextlib.contextmanager
def _pid_file(name: str) -> Iterator[None]:
    if not name:
        yield
        return
    file = Path(name)
    try:
        file.write_text(str(os.getpid()))
    except OSError as error:
        raise ValueError(f"cannot write --pid-file {name}: {error}") from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
