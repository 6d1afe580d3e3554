"""The jobs of this user: a folder and a log each, in one folder that the nodes see too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gpusched import config
from gpusched.files import write_whole
from gpusched.jobs import systems
from gpusched.jobs.node_processes import TERMINATED
from gpusched.jobs.request import Request
from gpusched.jobs.systems.system import SystemFailure

_JOB = re.compile(r"([a-z0-9]+)-([\w.\[\]-]+)")
_RECORD = "job.json"
_LOOK = 0.5
"""Seconds between two looks at a job's files."""
_ASK = 10.0
"""Seconds between two questions to a queueing system."""


class UnknownJobError(LookupError):
    """There is no trace of such a job."""


class JobError(RuntimeError):
    """What was asked cannot be done with this job."""


class DamagedJobError(JobError):
    """What is noted of a job cannot be read; the message names the file and the remedy."""


@dataclass(frozen=True)
class Job:
    """A job that was submitted."""

    backend: str
    """The queueing system."""
    number: str
    """As the queueing system calls it."""
    name: str
    """As the user calls it."""
    command: tuple[str, ...]
    """What it runs."""
    nodes: int
    """Number of nodes."""
    requeues: int
    """How often it is started again."""
    submitted: float
    """Seconds since 1970."""

    @property
    def identity(self) -> str:
        """Its name in commands."""
        return f"{self.backend}-{self.number}"

    @property
    def folder(self) -> Path:
        """The job's own."""
        return root() / self.identity

    @property
    def log(self) -> Path:
        """What it has printed."""
        return root() / f"{self.identity}.log"


@dataclass(frozen=True)
class Status:
    """How a job is."""

    state: str
    """``queued``, ``running``, ``ended``, or ``lost`` for one that ended without an exit code."""
    code: int | None = None
    """The exit code of one that has ended."""


def root() -> Path:
    """Return the folder of this user's jobs, whether or not it exists.

    Examples
    --------
    >>> import dask.config
    >>> from gpusched.jobs.submitted import root
    >>> with dask.config.set({"gpusched.jobs.folder": "/shared/jobs"}):
    ...     str(root())
    '/shared/jobs'
    """
    chosen = config.get("jobs.folder")
    if chosen != "default":
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "gpusched/jobs"


def submit(request: Request) -> Job:
    """Submit a job, and note it.

    Raises `gpusched.jobs.systems.system.SystemFailure` if the queueing system is not there, or
    refuses the job, or it cannot be noted; `gpusched.files.UnsafeFolderError` if the folder of jobs
    is not this user's alone.
    """
    from gpusched.files import own_folder

    own_folder(request.root, "set gpusched.jobs.folder to a folder of your own")
    system = systems.find(request.backend)
    number = system.submit(request)
    job = Job(
        backend=request.backend,
        number=number,
        name=request.name,
        command=request.command,
        nodes=request.nodes,
        requeues=request.requeues,
        submitted=time.time(),
    )
    folder = request.root / job.identity
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(folder / _RECORD, json.dumps(asdict(job)))
    except OSError as error:
        system.cancel(number)
        raise SystemFailure(
            f"job {job.identity} was submitted, and is cancelled, since it cannot be noted: {error}"
        ) from error
    return job


def find(identity: str, damaged: bool = False) -> Job:
    """Return a job by its identity, such as "slurm-1234".

    Raises `UnknownJobError` if there is no record of one; `DamagedJobError` if it cannot be read.

    Parameters
    ----------
    identity
        The job's.
    damaged
        Whether one whose record cannot be read is returned by what its identity says, which is
        enough to cancel or remove it.
    """
    file, told = root() / identity / _RECORD, _parts(identity)
    if told is None or not file.exists():
        known = ", ".join(each.parent.name for each in _records()) or "none"
        raise UnknownJobError(f"there is no job {identity!r}; there are: {known}")
    try:
        return _read(file)
    except DamagedJobError:
        if not damaged:
            raise
        return Job(*told, identity, (), 0, 0, 0.0)


def everything() -> tuple[list[Job], list[DamagedJobError]]:
    """Return all jobs, the newest last, and what is wrong with records that cannot be read."""
    found, wrong = list[Job](), list[DamagedJobError]()
    for file in _records():
        try:
            found.append(_read(file))
        except DamagedJobError as error:
            # Another process may have removed it meanwhile.
            wrong += [error] if file.exists() else []
    return sorted(found, key=lambda job: job.submitted), wrong


def _parts(identity: str) -> tuple[str, str] | None:
    """Return the queueing system and the number in a job's identity; None if it is none."""
    found = _JOB.fullmatch(identity)
    return (found[1], found[2]) if found and found[1] in systems.NAMES else None


def _records() -> list[Path]:
    return [file for file in sorted(root().glob(f"*/{_RECORD}")) if _parts(file.parent.name)]


def status(job: Job) -> Status:
    """Return how a job is.

    Raises `gpusched.jobs.systems.system.SystemFailure` if the queueing system does not say.
    """
    system = systems.find(job.backend)
    code = system.code(job.number, job.folder)
    # One that its queueing system told to stop may be queued again.
    if code is not None and (code != TERMINATED or not job.requeues):
        return Status("ended", code)
    state = system.state(job.number)
    if state is not None:
        return Status(state)
    # It may have ended since the first look.
    code = system.code(job.number, job.folder)
    return Status("lost") if code is None else Status("ended", code)


class Log:
    """What a job prints, given to a function, each part once."""

    def __init__(self, job: Job, write: Callable[[str], object]) -> None:
        self._job = job
        self._write = write
        self._command = systems.find(job.backend).log_command(job.number)
        """What shows it where the queueing system keeps it; run once: it begins at the start."""
        self._read = 0

    def show(self) -> None:
        """Give what has been printed so far."""
        if self._command:
            subprocess.run(self._command, check=False)
        else:
            self._copy()

    def follow(self) -> Status:
        """Give what is printed until the job is over; return how it is then.

        Goes on where an earlier call was interrupted. Raises
        `gpusched.jobs.systems.system.SystemFailure` if the queueing system does not say how it is.
        """
        command, self._command = self._command, []
        if command:
            subprocess.run([*command, "--follow"], check=False)
        asked, missing = float("-inf"), 0
        while True:
            now = Status("running")
            if (self._job.folder / "code").exists() or time.monotonic() - asked > _ASK:
                now, asked = status(self._job), time.monotonic()
            missing += now.state == "lost"
            # The exit code may take a while to be seen through a network's file system.
            over = now.state == "ended" or missing > 1
            self._copy(whole=over)
            if over:
                return now
            time.sleep(_LOOK)

    def _copy(self, whole: bool = True) -> None:
        """Give what has come since the last time, or the complete lines of it."""
        if not self._job.log.exists():
            return
        with self._job.log.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        if not whole:
            # A character that is half written is none.
            data = data[: data.rfind(b"\n") + 1]
        if data:
            self._write(data.decode(errors="replace"))
            self._read += len(data)


def cancel(job: Job) -> bool:
    """End a job; return whether there was something to end.

    Raises `gpusched.jobs.systems.system.SystemFailure` if the queueing system refuses.
    """
    if status(job).state in ("ended", "lost"):
        return False
    systems.find(job.backend).cancel(job.number)
    return True


def remove(job: Job) -> None:
    """Remove what is kept of a job that is over.

    Raises `JobError` if it is not over.
    """
    state = status(job).state
    if state not in ("ended", "lost"):
        raise JobError(f"job {job.identity} is {state}: cancel it first")
    shutil.rmtree(job.folder)
    job.log.unlink(missing_ok=True)


def _read(file: Path) -> Job:
    try:
        told = json.loads(file.read_text())
        found = Job(**{**told, "command": tuple(map(str, told["command"]))})
        return replace(found, nodes=int(found.nodes), submitted=float(found.submitted))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedJobError(
            f"{file} cannot be read: {error}. `gpusched jobs remove {file.parent.name}` removes it"
        ) from None
