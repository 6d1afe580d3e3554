"""What a launcher runs, and the flags of `gpusched launch` that say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

COMMAND = ("-m", "gpusched", "launch")
"""After the interpreter."""


@dataclass(frozen=True)
class LaunchOptions:
    """A job as its launchers see it."""

    command: tuple[str, ...] = ()
    """A script and its arguments, or flags of `gpusched run` before them."""
    backend: str | None = None
    """The queueing system; None for one node's part."""
    folder: Path | None = None
    """The job's own, which all nodes see."""
    nodes: int = 1
    """Number of nodes; the queueing system says it itself, if there is one."""
    gpus_per_node: int | None = None
    """GPUs of each node; None for what there is, 0 for CPU workers."""
    limit: float | None = None
    """Seconds after which the job is asked to stop."""
    grace: float = 60.0
    """Seconds from being asked to stop to being killed."""
    requeues: int = 0
    """How often the job is started again."""
    checkpoints: Path | None = None
    """Where `gpusched.checkpoint` keeps results; None for the job's folder."""
    kernels: Path | None = None
    """A pack of compiled kernels, which each node imports."""
    tls: Path | None = None
    """A folder of certificates."""
    scheduler_options: str = ""
    """Flags of `gpusched scheduler`."""
    worker_options: str = ""
    """Flags of `gpusched worker`."""
    run: Path | None = None
    """The folder of one start of the job, for one node's part of it."""
    rank: int | None = None
    """The node's number."""
    address: str | None = None
    """Where the first node's scheduler will be, if that is known in advance."""
    code_to_file: bool = False
    """Whether the first node exits with 0 and leaves the script's exit code in ``run``."""

    def words(self) -> list[str]:
        """Return the flags and arguments of `gpusched launch` that make this options.

        Examples
        --------
        >>> from gpusched.jobs.launch_options import LaunchOptions
        >>> LaunchOptions(("script.py", "--n", "3"), backend="local", nodes=2).words()
        ['--backend=local', '--nodes=2', '--', 'script.py', '--n', '3']
        """
        return [*self._flags(), "--", *self.command]

    def _flags(self) -> Iterator[str]:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "command" or value == field.default:
                continue
            flag = "--" + field.name.replace("_", "-")
            text = f"{value:g}" if isinstance(value, float) else value
            yield flag if value is True else f"{flag}={text}"
