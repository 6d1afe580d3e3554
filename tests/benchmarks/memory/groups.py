"""A memory cgroup for each worker, whose limit the kernel enforces, where this machine has them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROCESSES = "cgroup.procs"
VARIABLE = "GPUSCHED_BENCHMARK_GROUPS"
_START = Path(__file__).with_name("start"), Path(__file__).parents[3]
"""On the path of Python's modules, they have each worker call `join` before all imports."""


@dataclass(frozen=True)
class Hierarchy:
    """Where groups of processes are, and what the files of their limits are called."""

    own: Path
    """The folder of this process's group."""
    limit: str
    events: str
    """The file that counts processes which the kernel has ended, as ``oom_kill``."""


def hierarchy(
    mounted: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Hierarchy | None:
    """Return where this process may make groups; None if it may not.

    Parameters
    ----------
    mounted
        Where the hierarchies are mounted.
    own
        The file of this process's groups.

    Notes
    -----
    Version 1 needs root. Version 2 needs a group that is this process's to divide, with the memory
    controller on for those below it.
    """
    groups = dict(line.split(":", 2)[1:] for line in own.read_text().splitlines())
    if "memory" in groups:
        folder = mounted / "memory" / groups["memory"].lstrip("/")
        found = Hierarchy(folder, "memory.limit_in_bytes", "memory.oom_control")
    else:
        folder = mounted / groups.get("", "").lstrip("/")
        found = Hierarchy(folder, "memory.max", "memory.events")
        control = folder / "cgroup.subtree_control"
        if not control.exists() or "memory" not in control.read_text().split():
            return None
    return found if os.access(found.own, os.W_OK) else None


@dataclass
class Groups:
    """The groups of one program's workers."""

    environment: dict[str, str]
    """What a process is started with for its workers to be in groups of their own."""
    ended: int = field(default=0, init=False)
    """The processes that the kernel has ended, once all have."""


@contextlib.contextmanager
def groups(limit: int) -> Iterator[Groups]:
    """Give what has each worker in a group of its own, and remove those groups at the end.

    Parameters
    ----------
    limit
        Bytes of each.
    """
    found = hierarchy()
    if found is None:
        yield Groups({})
        return
    folder = found.own / f"gpusched-memory-{os.getpid()}"
    path = os.pathsep.join([*map(str, _START), *filter(None, [os.environ.get("PYTHONPATH")])])
    made = Groups({VARIABLE: f"{limit}:{found.limit}:{folder}", "PYTHONPATH": path})
    folder.mkdir()
    try:
        yield made
    finally:
        for each in folder.glob("*/"):
            for process in (each / _PROCESSES).read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (found.own / _PROCESSES).write_text(process)
            made.ended += _count(each / found.events)
            _remove(each)
        _remove(folder)


def _count(events: Path) -> int:
    """Return how many processes of a group the kernel has ended."""
    counts = dict(line.split() for line in events.read_text().splitlines())
    return int(counts.get("oom_kill", 0))


def _remove(folder: Path) -> None:
    """Remove a group, as soon as its processes are gone."""
    from tests.waiting import wait_for  # A worker imports this module, and nothing else.

    def is_gone() -> bool:
        with contextlib.suppress(OSError):  # It has processes still.
            folder.rmdir()
        return not folder.exists()

    wait_for(is_gone)


def join() -> None:
    """Put this process into a group of its own if it is to become a worker.

    Notes
    -----
    Called when Python starts, so that all the process's memory counts. Others that workers start,
    such as the compile service, which is there for all processes of the machine, leave the group.
    """
    told = os.environ.get(VARIABLE)
    if not told:
        return
    limit, name, folder = told.split(":", 2)
    group = Path(folder).parent
    if is_worker(sys.orig_argv):
        group = Path(folder, str(os.getpid()))
        group.mkdir()
        (group / name).write_text(limit)
    (group / _PROCESSES).write_text(str(os.getpid()))


def is_worker(arguments: list[str]) -> bool:
    """Return whether a nanny has started a process: multiprocessing's method of spawning."""
    return any("spawn_main" in part for part in arguments)
