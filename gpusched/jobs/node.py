"""One node's part of a job: its workers, and on the first also the scheduler and the script.

The first node leaves the scheduler's address in the folder ``run`` (``scheduler.json``), which all
nodes see, and at the end the script's exit code (``code``).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from gpusched import config
from gpusched.files import write_whole
from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.node_processes import TERMINATED, Children, Stopped
from gpusched.quantities import read_seconds

RANKS = (
    "SLURM_PROCID",
    "PMIX_RANK",
    "PMI_RANK",
    "OMPI_COMM_WORLD_RANK",
    "JOB_COMPLETION_INDEX",
)
"""Variables by which launchers number what they start: Slurm's, MPI's, Kubernetes'."""

CLOSING = 15.0
"""Seconds that scheduler and workers have to end; workers take 10 at most."""
_LOOK = 0.2
"""Seconds between two looks at the shared folder."""
_PATIENCE = "gpusched.jobs.start-timeout"
"""The setting that says how long a node waits for the first one's scheduler."""
_KILLED = 137
"""Exit code of what SIGKILL ended."""
_REJOIN = 2.0
"""Seconds between two attempts to join the scheduler that comes after the one that has ended."""


class NodeError(RuntimeError):
    """A node could not do its part."""


def rank_here() -> int:
    """Return this node's number, as its launcher says.

    Raises `ValueError` if no variable says it.

    Examples
    --------
    >>> import os
    >>> from gpusched.jobs.node import rank_here
    >>> os.environ["SLURM_PROCID"] = "3"
    >>> rank_here()
    3
    >>> del os.environ["SLURM_PROCID"]
    """
    for name in RANKS:
        text = os.environ.get(name)
        if text is not None:
            if not text.isdecimal():
                raise ValueError(f"{name} is {text!r}, and should be this node's number")
            return int(text)
    raise ValueError(f"which node is this? Give --rank, or set one of {', '.join(RANKS)}")


def serve(options: LaunchOptions, folder: str) -> int:
    """Do this node's part, and return its exit code.

    Raises `NodeError` if ``run`` is the folder of another start, or no scheduler appears in it in
    time.

    Parameters
    ----------
    options
        With a ``run`` or an ``address``, and a ``rank``.
    folder
        Where the script's modules are, for the workers too.
    """
    environment = _environment(options, folder)
    if options.kernels is not None:
        _import(options.kernels, environment)
    if options.rank != 0:
        return _follow(options, environment)
    if options.run is not None:
        _prepare(options.run)
    return _First(options, environment).serve()


class _First:
    """The node that has the scheduler and the script."""

    def __init__(self, options: LaunchOptions, environment: dict[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._children = Children(options.limit)
        self._script: subprocess.Popen[bytes] | None = None
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._workers: subprocess.Popen[bytes] | None = None

    def serve(self) -> int:
        """Run the script; end what was started for it; return this process's exit code."""
        options, ended = self._options, True
        with self._children:
            try:
                code = self._run()
            except Stopped as told:
                code = self._stop(told.code)
            except NodeError as error:
                print(f"gpusched launch: {error}", file=sys.stderr, flush=True)
                code, ended = 1, False
            if options.run is not None and (ended or not options.code_to_file):
                # Before the scheduler ends, since the other nodes end with it. The head of a job
                # itself finds out that a node has failed.
                write_whole(options.run / "code", str(code))
            self._close()
        return code if not (options.code_to_file and ended) else 0

    def _run(self) -> int:
        options, start = self._options, self._children.start
        self._scheduler = start(_gpusched("scheduler", *self._scheduler_words()), self._environment)
        self._environment["DASK_SCHEDULER_ADDRESS"] = address = self._address()
        self._workers = start(_worker(options, address), self._environment)
        words = ["--scheduler", address, *options.command]
        self._script = start(_gpusched("run", *words), self._environment)
        while self._script.poll() is None:
            for name, child in (("scheduler", self._scheduler), ("workers", self._workers)):
                # What ends well was ended by the script (client.shutdown()), which may go on.
                if child.poll():
                    raise NodeError(f"the first node's {name} failed before the script ended")
            self._children.wait()
        return _code(self._script)

    def _scheduler_words(self) -> list[str]:
        # What is given comes later, and so wins. Whoever reaches a dashboard sees what runs.
        given = ["--dashboard-address=:0", "--no-dashboard"]
        given += shlex.split(self._options.scheduler_options)
        if self._options.address is not None:
            return [f"--port={self._options.address.rpartition(':')[2]}", *given]
        assert self._options.run is not None
        return ["--port=0", f"--scheduler-file={self._options.run / 'scheduler.json'}", *given]

    def _address(self) -> str:
        assert self._scheduler is not None
        while (address := _told(self._options)) is None:
            if self._scheduler.poll() is not None:
                raise NodeError("the scheduler did not start; what it said is above")
            self._children.wait(_LOOK)
        return address

    def _stop(self, code: int) -> int:
        """End the script while its cluster still runs; return its exit code, or ``code``."""
        if self._script is None:
            return code
        self._children.end(self._script, _share_of_script(self._options.grace))
        ended = _code(self._script)
        return code if ended in (TERMINATED, _KILLED) else ended

    def _close(self) -> None:
        if self._script is not None:
            self._children.end(self._script, 0)
        if self._scheduler is not None:
            self._children.end(self._scheduler, CLOSING)
        # Workers end with the scheduler; to be told as well would make it a hurried end.
        if self._workers is not None and not self._children.ended(self._workers, CLOSING):
            self._children.end(self._workers, CLOSING)


def _follow(options: LaunchOptions, environment: dict[str, str]) -> int:
    with Children() as children:
        workers: list[subprocess.Popen[bytes]] = []
        try:
            if options.run is not None:
                return _join_once(options, environment, children, workers)
            while True:
                _join(options.address or "", options, environment, children, workers)
                children.wait(_REJOIN)
        except Stopped as told:
            # So is the first node, whose script is to have its workers until it has ended.
            if workers and not children.ended(workers[-1], options.grace):
                children.end(workers[-1], CLOSING)
            return told.code


def _join_once(
    options: LaunchOptions,
    environment: dict[str, str],
    children: Children,
    workers: list[subprocess.Popen[bytes]],
) -> int:
    assert options.run is not None
    patience = read_seconds(_PATIENCE, config.get("jobs.start-timeout"))
    deadline = time.monotonic() + patience
    while (address := _told(options)) is None:
        # The scheduler removes its file when it ends, so a late node may find none, and the code.
        if _is_over(options):
            return 0
        if time.monotonic() > deadline:
            raise NodeError(
                f"node {options.rank} found no scheduler in {options.run} within "
                f"{patience:g} s: start "
                f"node 0 (--rank 0) with the same --run, or raise {_PATIENCE}"
            )
        children.wait(_LOOK)
    code = _join(address, options, environment, children, workers)
    return 0 if _is_over(options) else code


def _join(
    address: str,
    options: LaunchOptions,
    environment: dict[str, str],
    children: Children,
    workers: list[subprocess.Popen[bytes]],
) -> int:
    workers.append(children.start(_worker(options, address), environment))
    while workers[-1].poll() is None:
        children.wait()
    return _code(workers[-1])


def _share_of_script(grace: float) -> float:
    """Return the seconds that a script has, so that its cluster can be closed after it."""
    return max(grace - 2 * CLOSING, grace / 2)


def _prepare(run: Path) -> None:
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    used = [name for name in ("scheduler.json", "code") if (run / name).exists()]
    if used:
        raise NodeError(f"{run} has been used ({used[0]}): give each start a folder of its own")


def _is_over(options: LaunchOptions) -> bool:
    """Return whether the script has ended; the head of a job then removes the folder it made."""
    assert options.run is not None
    return (options.run / "code").exists() or (options.code_to_file and not options.run.exists())


def _told(options: LaunchOptions) -> str | None:
    """Return the scheduler's address, if it is known yet."""
    if options.run is None:
        return options.address
    try:
        told = json.loads((options.run / "scheduler.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        # Not there yet, or being written.
        return None
    address: str = told["address"]
    return address


def _import(kernels: Path, environment: dict[str, str]) -> None:
    """Import a pack of compiled kernels, before any process of the job could want one.

    A pack that is of no use, as for another processor, says so in the job's log: the job takes the
    time that compiling takes, and nothing else is lost.
    """
    command = [sys.executable, "-m", "gpusched", "cache", "import", str(kernels)]
    subprocess.run(command, env=os.environ | environment, check=False)


def _environment(options: LaunchOptions, folder: str) -> dict[str, str]:
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    # Unbuffered, so that the log can be followed.
    told = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    # The log is the script's; distributed tells of each connection unless told otherwise.
    told["DASK_LOGGING__DISTRIBUTED"] = os.environ.get("DASK_LOGGING__DISTRIBUTED", "warning")
    if options.checkpoints is not None:
        told["DASK_GPUSCHED__JOBS__CHECKPOINTS"] = str(options.checkpoints)
    return told | (_encrypting(options.tls) if options.tls is not None else {})


def _encrypting(folder: Path) -> dict[str, str]:
    """Return the environment variables by which dask uses a folder's certificates."""
    from gpusched.cluster import certificates

    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in certificates.settings(folder).items()
    }


def _worker(options: LaunchOptions, address: str) -> list[str]:
    devices = {None: [], 0: ["--cpu"]}.get(
        options.gpus_per_node, [f"--gpus={options.gpus_per_node}"]
    )
    given = ["--preload=gpusched.workers.brief_logs", *shlex.split(options.worker_options)]
    return _gpusched("worker", address, *devices, *given)


def _gpusched(*words: str) -> list[str]:
    return [sys.executable, "-m", "gpusched", *words]


def _code(child: subprocess.Popen[bytes]) -> int:
    """Return an exit code as a shell reports it."""
    code = child.returncode
    return code if code >= 0 else 128 - code
