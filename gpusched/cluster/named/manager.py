"""The process that a named cluster lives in: ``python -m gpusched.cluster.named.manager``.

It is started with the cluster's folder and arguments, prints on its output, in one line, that the
cluster is up or why it is not, and serves requests until it is asked to stop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpusched.cluster import Cluster
from gpusched.cluster.certificates import load
from gpusched.cluster.listening import why_not_started
from gpusched.cluster.named import control, state
from gpusched.workers.visible_gpus import NoDeviceError

logger = logging.getLogger(__name__)


class Manager:
    """A cluster, and what may be asked of it.

    Parameters
    ----------
    folder
        The cluster's, locked by this process.
    arguments
        Those of `gpusched.Cluster`, and ``tls``, a folder of certificates.

    Notes
    -----
    Used on the event loop only.
    """

    def __init__(self, folder: Path, arguments: dict[str, Any]) -> None:
        self._folder = folder
        self._tls: str = arguments.pop("tls", None) or ""
        if self._tls:
            arguments["security"] = load(self._tls)
        # Nobody watches, so what distributed says is kept in the log.
        told = {"silence_logs": False, "name": folder.name, "asynchronous": True}
        self._cluster = Cluster(**{**told, **arguments})
        self._started = time.time()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Start, serve until asked to stop, and close."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        async with self._cluster as cluster:
            record = state.Record(
                self._folder.name,
                os.getpid(),
                cluster.scheduler_address,
                cluster.dashboard_link,
                self._started,
                self._tls,
            )
            self._record = asdict(record)
            server = await control.listen(self._folder, self.answer)
            state.write(self._folder, record)
            _tell(self._record)
            await self._stop.wait()
            server.close()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks, and return the answer."""
        match request["op"]:
            case "status":
                return self._status()
            case "scale":
                self._cluster.scale(int(request["workers"]))
                return {"requested": len(self._cluster.worker_spec)}
            case "stop":
                self._stop.set()
                return {"pid": os.getpid()}
            case other:
                raise ValueError(f"no such request: {other}")

    def _status(self) -> dict[str, Any]:
        workers = [
            {
                "name": str(worker.name),
                "address": worker.address,
                "threads": worker.nthreads,
                "memory": worker.metrics.get("memory", 0),
                "memory_limit": worker.memory_limit or 0,
                "status": worker.status.name,
            }
            for worker in self._workers()
        ]
        requested = len(self._cluster.worker_spec)
        return {"record": self._record, "workers": workers, "requested": requested}

    def _workers(self) -> list[Any]:
        scheduler = self._cluster.scheduler
        return [] if scheduler is None else list(scheduler.workers.values())


def _tell(message: dict[str, Any]) -> None:
    """Write one line for whoever has started this process, who then stops listening."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def main(folder: Path, arguments: dict[str, Any]) -> int:
    """Run the cluster; return the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        lock = state.acquire(folder)
    except state.DamagedError as error:
        _tell({"error": str(error)})
        return 1
    if lock is None:
        _tell(
            {"error": f"there is a cluster {folder.name!r} already: use another name, or stop it"}
        )
        return 1
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, sys.stderr.fileno())
    (folder / "state.json").unlink(missing_ok=True)
    try:
        problem = asyncio.run(_run(folder, arguments))
    except Exception as error:
        # Whatever it is, whoever waits for the cluster is told, and the log has the traceback.
        logger.exception("the cluster failed")
        port, host = str(arguments.get("port", "")), arguments.get("host", "127.0.0.1")
        _tell({"error": why_not_started(error, port, host)})
        return 1
    if problem:
        _tell({"unusable": problem})
        return 1
    state.forget(folder)
    return 0


async def _run(folder: Path, arguments: dict[str, Any]) -> str:
    """Run a cluster to its end; return what is wrong with its arguments, empty if nothing is."""
    try:
        manager = Manager(folder, arguments)
    except ValueError as error:
        return str(error)
    except NoDeviceError as error:
        return error.of_command()
    await manager.run()
    return ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
