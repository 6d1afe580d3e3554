"""What a user asks a queueing system for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from gpusched.jobs.launch_options import LaunchOptions

_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Request:
    """A job that is to be submitted."""

    command: tuple[str, ...]
    """A script and its arguments, or flags of `gpusched run` before them."""
    backend: str
    """The queueing system."""
    name: str
    """Of the job, for lists."""
    seconds: float
    """That the job may take."""
    root: Path
    """The folder of all jobs."""
    directory: Path
    """Where the script runs."""
    python: str
    """The interpreter, as the nodes see it."""
    nodes: int = 1
    """Number of nodes."""
    gpus_per_node: int | None = None
    """GPUs of each node; None for the queueing system's choice, 0 for CPU workers."""
    cpus: int | None = None
    """Cores of each node; None for the queueing system's choice."""
    memory: int | None = None
    """Bytes of each node; None for the queueing system's choice."""
    grace: float = 120.0
    """Seconds before its end when the job is asked to stop."""
    queue: str | None = None
    """The queue, which Slurm calls partition."""
    account: str | None = None
    """Who is charged."""
    requeues: int = 0
    """How often the job is started again."""
    checkpoints: Path | None = None
    """Where `gpusched.checkpoint` keeps results; None for the job's folder."""
    kernels: Path | None = None
    """A pack of compiled kernels, which each node imports."""
    tls: Path | None = None
    """A folder of certificates, or on Kubernetes the name of a Secret."""
    scheduler_options: str = ""
    """Flags of `gpusched scheduler`."""
    worker_options: str = ""
    """Flags of `gpusched worker`."""
    options: tuple[str, ...] = field(default=())
    """Further flags of the queueing system."""
    image: str | None = None
    """On Kubernetes, the container image."""
    claim: str | None = None
    """On Kubernetes, a volume that all pods see, as NAME:PATH."""

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(
                f"{self.name!r} cannot be a job's name: use at most 63 letters, digits, '-', '_' "
                f"and '.', and begin with a letter or a digit"
            )
        if self.grace >= self.seconds:
            raise ValueError(
                f"--grace {self.grace:g} s leaves nothing of --time {self.seconds:g} s: ask for "
                f"more time, or give a shorter --grace"
            )
        for option in self.options:
            if "\n" in option or not option.startswith("-"):
                raise ValueError(
                    f"--option {option!r} should be one flag of the queueing system, such as "
                    f"--option=--exclusive"
                )
        _check_folder(self.root)

    @property
    def mebibytes(self) -> int | None:
        """Memory of each node in MiB, rounded up, as queueing systems are given it."""
        return None if self.memory is None else -(-self.memory // 2**20)

    def launch_options(self) -> LaunchOptions:
        """Return what the job's launcher is given, but for the job's folder."""
        return LaunchOptions(
            command=self.command,
            backend=self.backend,
            nodes=self.nodes if self.backend == "local" else 1,
            gpus_per_node=self.gpus_per_node,
            limit=None if self.backend in ("slurm", "lsf") else self.seconds - self.grace,
            grace=self.grace,
            requeues=self.requeues,
            checkpoints=self.checkpoints,
            kernels=self.kernels,
            tls=self.tls,
            scheduler_options=self.scheduler_options,
            worker_options=self.worker_options,
        )


def read_time(flag: str, text: str) -> float:
    """Return the seconds of a flag such as "2h", "90m", "01:30:00" or "2-00:00:00".

    Raises `ValueError` if it cannot be read, or queueing systems read it differently.

    Examples
    --------
    >>> from gpusched.jobs.request import read_time
    >>> read_time("--time", "01:30:00"), read_time("--time", "90m")
    (5400.0, 5400.0)
    """
    from dask.utils import parse_timedelta

    found = _CLOCK.fullmatch(text.strip())
    if found:
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        whole = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    else:
        try:
            # A bare number is minutes to some queueing systems, seconds to dask: ask for a unit.
            whole = float(parse_timedelta(text, default=False))
        except (ValueError, LookupError):
            whole = -1
    if not 0 < whole < 10**9:
        raise ValueError(
            f"cannot read {flag} {text!r}: write hours:minutes:seconds, as in 01:30:00, or a "
            f"number with a unit, as in 90m or 2h"
        )
    return whole


def _check_folder(root: Path) -> None:
    # Queueing systems read it in a line of flags, where each has its own ways of quoting.
    if re.search(r"[\s%\"'$\\]", str(root)):
        raise ValueError(
            f"the folder of jobs cannot be {str(root)!r}: set gpusched.jobs.folder to one without "
            f"spaces, quotes, $, % and \\"
        )
