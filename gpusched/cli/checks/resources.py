"""Ports, memory limits and disks of this machine."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import dask.config
import psutil
from dask.utils import format_bytes
from distributed.system import MEMORY_LIMIT

from gpusched.cli.checks.finding import Finding

_PORTS = {8786: "scheduler", 8787: "dashboard"}
_FEW_FILES = 4096
"""Open files below which large clusters run out of sockets."""
_LITTLE_SPACE = 2**30
"""Bytes of free disk below which spilling fails soon."""
_TOKEN = b"gpusched"


def ports() -> Finding:
    """Try to listen on the ports that a scheduler takes by default."""
    taken = []
    for port, what in _PORTS.items():
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("", port))
            except OSError:
                taken.append(f"{port} ({what}) by {_holder(port)}")
    if taken:
        return Finding.warning(
            f"taken: {', '.join(taken)}", "choose others by --port and --dashboard-address, or 0"
        )
    return Finding.ok(" and ".join(f"{port} ({what})" for port, what in _PORTS.items()) + " free")


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return "another user's process"
    return "a process that cannot be seen from here"


def loopback() -> Finding:
    """Send a few bytes to this machine."""
    remedy = "check the firewall, and that the interface lo is up: ip link set lo up"
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(5)
            received: list[bytes] = []
            taking = threading.Thread(target=_take, args=(listener, received))
            taking.start()
            with socket.create_connection(listener.getsockname(), timeout=5) as sender:
                sender.sendall(_TOKEN)
            taking.join(timeout=5)
    except OSError as error:
        return Finding.failure(f"no connection to 127.0.0.1: {error}", remedy)
    if received != [_TOKEN]:
        return Finding.failure("what was sent to 127.0.0.1 did not arrive", remedy)
    return Finding.ok("connections to 127.0.0.1 work")


def _take(listener: socket.socket, received: list[bytes]) -> None:
    try:
        connection, _ = listener.accept()
    except OSError:
        return
    with connection:
        received.append(connection.recv(len(_TOKEN)))


def memory_limit() -> Finding:
    """Compare the limit that workers share with what the machine has."""
    total = psutil.virtual_memory().total
    source = " (the limit of this container, job or session)" if total > MEMORY_LIMIT else ""
    told = f"{format_bytes(MEMORY_LIMIT)} of {format_bytes(total)}{source}"
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        return Finding.warning(
            f"ulimit -v bounds each process's addresses to {format_bytes(soft)}",
            "ulimit -v unlimited: a GPU's address space alone is larger than most limits",
        )
    if MEMORY_LIMIT < 2**30:
        return Finding.warning(
            f"workers share only {told}", "give the container or the job more memory"
        )
    return Finding.ok(f"workers share {told}")


def open_files() -> Finding:
    """Look at the number of files and sockets that a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Schedulers raise their own limit to half of what they may, workers do not.
    if max(soft, hard // 2) < _FEW_FILES:
        return Finding.warning(
            f"a process may open {soft} files, at most {hard}",
            "raise the limit (ulimit -n, LimitNOFILE=) where more than a few hundred workers join",
        )
    return Finding.ok(f"{soft}, at most {hard}")


def shared_memory() -> Finding:
    """Look at /dev/shm, which multiprocessing's locks need."""
    path = Path("/dev/shm")
    if not os.access(path, os.W_OK):
        return Finding.failure(f"{path} cannot be written", "mount a tmpfs there")
    free = shutil.disk_usage(path).free
    if free < 2**20:
        return Finding.warning(f"{format_bytes(free)} free in {path}", "docker run --shm-size=1g")
    return Finding.ok(f"{format_bytes(free)} free in {path}")


def spill_folder() -> Finding:
    """Look at the disk that workers spill to."""
    configured = dask.config.get("temporary-directory", None)
    # As distributed has it: where TMPDIR is no folder that can be written, it is another one.
    folder = Path(configured or tempfile.gettempdir())
    change = (
        "choose another disk by --local-directory of gpusched worker, or dask's setting "
        "temporary-directory"
    )
    # Workers make it, and what lies above it, if it is missing.
    nearest = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        unmade = "" if nearest == folder else f"{folder} cannot be made: "
        return Finding.failure(f"{unmade}{nearest} is not a folder that can be written", change)
    free = shutil.disk_usage(nearest).free
    missing = "" if nearest == folder else " (made when needed)"
    told = f"{folder}{missing}, {format_bytes(free)} free"
    if _is_memory(nearest):
        return Finding.warning(f"{told}, is in memory: spilling there frees none", change)
    if free < _LITTLE_SPACE:
        return Finding.warning(told, change)
    return Finding.ok(told)


def _is_memory(folder: Path) -> bool:
    resolved = str(folder.resolve())
    best = max(
        (part for part in psutil.disk_partitions(all=True) if _lies_under(resolved, part)),
        key=lambda part: len(part.mountpoint),
        default=None,
    )
    return best is not None and best.fstype in ("tmpfs", "ramfs")


def _lies_under(path: str, partition: object) -> bool:
    mount = str(getattr(partition, "mountpoint", "/"))
    return mount == "/" or path == mount or path.startswith(mount.rstrip("/") + "/")
