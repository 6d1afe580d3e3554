"""The local machine as a queueing system: a job starts at once, and nodes are process groups."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

from gpusched.files import write_whole
from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.request import Request
from gpusched.jobs.systems.system import (
    System,
    SystemFailure,
    job_script,
    node_command,
    refuse_queueing,
    require,
)


class Local(System):
    """By bash, which is always there.

    A job's number is that of its folder. The job holds the folder's lock from its beginning to its
    end, so that no other process can be taken for it.
    """

    name = "local"
    submitter = "bash"
    remedy = "install bash"

    def script(self, request: Request) -> str:
        """Return a script for bash."""
        return job_script([], request, f'"${{1:-{request.root}/local-$$}}"')

    def submit(self, request: Request) -> str:
        """Start the script, which goes on without this process."""
        from gpusched.cluster.named import state

        require("bash", self.remedy)
        folder = _new_folder(request.root)
        log = request.root / f"{folder.name}.log"
        try:
            lock = state.acquire(folder)
            assert lock is not None, f"{folder} was made a moment ago"
            with lock:
                self._start(request, folder, log, lock.fileno())
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            log.unlink(missing_ok=True)
            raise
        return folder.name.partition("-")[2]

    def _start(self, request: Request, folder: Path, log: Path, lock: int) -> None:
        # Names of files are bytes, which a locale need not be able to write as text.
        write_whole(folder / "script", os.fsencode(self.script(request)))
        with log.open("ab") as printed:
            job = subprocess.Popen(
                ["bash", str(folder / "script"), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
                pass_fds=[lock],
            )
        # The job goes on; only Python's warning that nobody waits for it is left out.
        job.returncode = 0
        try:
            write_whole(folder / "pid", str(job.pid))
        except OSError:
            # Nobody could cancel it.
            os.killpg(job.pid, signal.SIGKILL)
            raise

    def settled(self, request: Request) -> Request:
        """Share the machine's GPUs, or its cores and its memory, among the nodes."""
        from gpusched.workers.visible_gpus import visible_devices

        refuse_queueing(request, "leave it out")
        there = len(visible_devices())
        gpus = there // request.nodes if request.gpus_per_node is None else request.gpus_per_node
        if gpus * request.nodes > there:
            raise ValueError(
                f"--gpus-per-node {gpus} on {request.nodes} local nodes takes "
                f"{gpus * request.nodes} GPUs, and this machine has {there}: ask for fewer, or 0 "
                f"for CPU workers"
            )
        options = request.worker_options if gpus else _shared(request)
        return super().settled(replace(request, gpus_per_node=gpus, worker_options=options))

    def state(self, number: str) -> str | None:
        """Look whether the folder is locked."""
        from gpusched.cluster.named import state
        from gpusched.jobs.submitted import root

        return "running" if state.is_alive(root() / f"local-{number}") else None

    def cancel(self, number: str) -> None:
        """Ask the job to stop, by SIGTERM."""
        from gpusched.jobs.submitted import root

        if self.state(number) is None:
            return
        file = root() / f"local-{number}" / "pid"
        if not file.exists():
            raise SystemFailure(f"job local-{number} is still starting: try again")
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)

    def node_commands(self, part: LaunchOptions) -> list[list[str]]:
        """Return one command for each node, with its share of the GPUs."""
        commands = []
        for rank in range(part.nodes):
            mine = replace(part, rank=rank, nodes=1)
            if part.gpus_per_node:
                first = rank * part.gpus_per_node
                positions = ",".join(map(str, range(first, first + part.gpus_per_node)))
                # A comma makes a list of one, too.
                devices = f"--gpus={positions}{',' if part.gpus_per_node == 1 else ''}"
                options = f"{devices} {part.worker_options}".strip()
                mine = replace(mine, gpus_per_node=None, worker_options=options)
            commands.append(node_command(mine))
        return commands

    def requeue(self) -> None:
        """Have the job go on in this process: there is no queue."""


def _shared(request: Request) -> str:
    """Return the options of CPU workers, with this node's share of what they do not name."""
    import dask.system

    options = request.worker_options
    if "--threads" not in options and "--workers" not in options:
        cores = request.cpus or max(1, dask.system.CPU_COUNT // request.nodes)
        options += f" --threads={cores}"
    if "--memory-limit" not in options and "--workers" not in options:
        options += f" --memory-limit={request.memory or round(1 / request.nodes, 4)}"
    return options.strip()


def _new_folder(root: Path) -> Path:
    """Make a folder for the next job; of two made at once, each gets its own."""
    numbers = [int(each.name[6:]) for each in root.glob("local-*") if each.name[6:].isdecimal()]
    number = max(numbers, default=0)
    while True:
        number += 1
        try:
            (root / f"local-{number}").mkdir(mode=0o700)
        except FileExistsError:
            continue
        return root / f"local-{number}"


SYSTEM = Local()
