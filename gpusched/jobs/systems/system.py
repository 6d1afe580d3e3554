"""What every queueing system can be asked for, and what the files of most have in common."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpusched.jobs.launch_options import COMMAND, LaunchOptions
from gpusched.jobs.request import Request

_PATIENCE = 60.0
"""Seconds that a queueing system's command may take."""
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables that nodes get besides dask's settings, where their launcher passes none on."""


class SystemFailure(RuntimeError):
    """A queueing system is not there, or did not do what it was asked."""


class System(ABC):
    """A queueing system, reached by its own commands."""

    name: str
    """As in ``--backend``."""
    submitter: str
    """The command that takes jobs."""
    remedy: str
    """What to do where that command is missing."""
    unknown: str
    """What its commands say of jobs they no longer know: a regular expression."""

    @abstractmethod
    def script(self, request: Request) -> str:
        """Return the text that is submitted."""

    @abstractmethod
    def submit(self, request: Request) -> str:
        """Submit a job and return its number, as the queueing system calls it."""

    @abstractmethod
    def state(self, number: str) -> str | None:
        """Return "queued" or "running", or None for a job that is over."""

    @abstractmethod
    def cancel(self, number: str) -> None:
        """End a job; one that is over already stays so."""

    @abstractmethod
    def node_commands(self, part: LaunchOptions) -> list[list[str]]:
        """Return the commands that start each node's part; the first ends with the script."""

    def code(self, number: str, folder: Path) -> int | None:
        """Return the exit code of a job that has ended, or None where none is known."""
        file = folder / "code"
        return int(file.read_text()) if file.exists() else None

    def log_command(self, number: str) -> list[str]:
        """Return a command that prints a job's log, or nothing where the log is a file here."""
        return []

    def requeue(self) -> int | None:
        """Put this job back into its queue; return the exit code to end with, None to go on."""
        raise SystemFailure(f"a job of {self.name} cannot put itself back into the queue")

    def settled(self, request: Request) -> Request:
        """Return the request with what it left open; refuse what this system cannot do.

        Raises `ValueError` if it cannot.
        """
        if request.image is not None or request.claim is not None:
            raise ValueError("--image and --claim are for Kubernetes: use them with --backend k8s")
        return request

    def ask(self, *command: str, text: str = "") -> str:
        """Run a command of the queueing system and return what it prints.

        Raises `SystemFailure` if there is no such command, or it fails; the message has what it
        said.
        """
        require(command[0], self.remedy)
        try:
            done = subprocess.run(
                command, input=os.fsencode(text), capture_output=True, timeout=_PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise SystemFailure(f"{command[0]} did not end within {_PATIENCE:g} s") from None
        if done.returncode:
            told = os.fsdecode(done.stderr or done.stdout).strip()
            raise SystemFailure(f"{command[0]}: {told or f'exit code {done.returncode}'}")
        return os.fsdecode(done.stdout).strip()

    def look_up(self, *command: str) -> str | None:
        """Return what a command reports of a job, as `ask` does; None if the job is unknown."""
        try:
            return self.ask(*command)
        except SystemFailure as failure:
            if re.search(self.unknown, str(failure)):
                return None
            raise


def refuse_queueing(request: Request, remedy: str) -> None:
    """Refuse flags for what this backend lacks: queues, accounts, and flags of its own.

    Raises
    ------
    ValueError
        That names the flag.
    """
    for name in ("queue", "account", "options"):
        if getattr(request, name):
            flag = f"--{name.removesuffix('s')}"
            raise ValueError(f"{flag} has no meaning with --backend {request.backend}: {remedy}")


def require(program: str, remedy: str) -> None:
    """Raise `SystemFailure` if there is no such program on PATH."""
    if shutil.which(program) is None:
        raise SystemFailure(f"there is no {program} on PATH: {remedy}")


def job_script(flags: Sequence[str], request: Request, folder: str, before: str = "") -> str:
    """Return a script of flags for a queueing system and one command.

    Parameters
    ----------
    flags
        Lines for the queueing system.
    request
        The job.
    folder
        The job's own, as bash is to read it; it may contain a variable.
    before
        A line to run first.
    """
    options = request.launch_options()
    words = options.words()
    split = words.index("--")
    lines = [f"--folder={folder}", *map(shlex.quote, words[:split])]
    program = shlex.join([request.python, *COMMAND])
    return "\n".join(
        [
            "#!/bin/bash",
            *flags,
            "# Made by `gpusched submit`; docs/how-to/jobs.md says what becomes of it.",
            *filter(None, [before]),
            f"cd {shlex.quote(str(request.directory))} || exit 2",
            " \\\n    ".join([f"exec {program}", *lines, f"-- {shlex.join(options.command)}"]),
            "",
        ]
    )


def on_hosts(launcher: str, variable: str, part: LaunchOptions) -> list[list[str]]:
    """Return commands that start a node's part on each host of a job.

    Raises `SystemFailure` if there is no such variable.

    Parameters
    ----------
    launcher
        The command that starts others on a host.
    variable
        The one that names the file with the hosts, where each may stand often. The first is this
        machine, where the job's script runs.
    part
        The part of one node, but for its rank.
    """
    file = os.environ.get(variable)
    if file is None:
        raise SystemFailure(f"{variable} is not set: start this in a job of that queueing system")
    names = list(dict.fromkeys(Path(file).read_text().split()))
    if len(names) > 1:
        require(launcher, "start this in a job of that queueing system")
    parts = [node_command(replace(part, rank=rank)) for rank in range(len(names))]
    told = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if _is_passed_on(name)]
    others = zip(names[1:], parts[1:], strict=True)
    return [parts[0], *([launcher, host, "env", *told, *words] for host, words in others)]


def node_command(part: LaunchOptions) -> list[str]:
    """Return the command for a node's part, by this interpreter."""
    return [sys.executable, *COMMAND, *part.words()]


def _is_passed_on(name: str) -> bool:
    return name in _PASSED_ON or name.startswith("DASK_")


def minutes(seconds: float) -> int:
    """Return whole minutes, rounded up."""
    return int(-(-seconds // 60))


def clock(seconds: float) -> str:
    """Return a time as hours:minutes:seconds.

    Examples
    --------
    >>> from gpusched.jobs.systems.system import clock
    >>> clock(5400)
    '01:30:00'
    """
    whole = int(-(-seconds // 1))
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
