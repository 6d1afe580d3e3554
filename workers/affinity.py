"""The cores that a worker's process is bound to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from itertools import pairwise


def allowed_cpus() -> tuple[int, ...]:
    """Return the cores that this process may use, which a queueing system may have restricted."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def choose(wanted: Iterable[int], allowed: Sequence[int]) -> tuple[tuple[int, ...], str | None]:
    """Return those of the wanted cores that are allowed; or all allowed ones, and why, if none is.

    Examples
    --------
    >>> from gpusched.workers.affinity import choose
    >>> choose([0, 1, 2], [1, 2, 3])
    ((1, 2), None)
    >>> choose([8, 9], [0, 1])
    ((0, 1), 'none of the cores 8-9 is allowed to this process, which may use 0-1')
    """
    wanted = set(wanted)
    shared = tuple(sorted(wanted & set(allowed)))
    if shared:
        return shared, None
    return tuple(sorted(allowed)), (
        f"none of the cores {ranges(wanted)} is allowed to this process, which may use "
        f"{ranges(allowed)}"
    )


def ranges(cpus: Iterable[int]) -> str:
    """Return cores as text, neighbours as a range, as Linux writes them.

    Examples
    --------
    >>> from gpusched.workers.affinity import ranges
    >>> ranges([0, 1, 2, 3, 8])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def slices(cpus: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Divide cores into so many runs of neighbours; they are shared where there are too few.

    Examples
    --------
    >>> from gpusched.workers.affinity import slices
    >>> slices([0, 1, 2, 3, 4], 2), slices([0, 1], 3)
    ([(0, 1), (2, 3, 4)], [(0,), (1,), (0,)])
    """
    total = len(cpus)
    if count > total:
        return [(cpus[number % total],) for number in range(count)]
    edges = [total * number // count for number in range(count + 1)]
    return [tuple(cpus[a:b]) for a, b in pairwise(edges)]


def pin(cpus: Iterable[int]) -> str | None:
    """Bind every thread of this process to cores; return why that was refused, or None.

    A refusal is not an error of the worker, which runs on the cores it has: queueing systems allow
    a process some of the cores only, and answer EINVAL for the others.
    """
    if not hasattr(os, "sched_setaffinity"):
        return "this operating system binds no process to cores"
    wanted = set(cpus)
    bound: set[int] = set()
    try:
        # A thread inherits the cores of the one that starts it, which may not be bound yet.
        while new := _threads() - bound:
            for thread in new:
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, wanted)
            bound |= new
    except (OSError, ValueError, OverflowError) as error:
        return f"{error} (allowed are {ranges(allowed_cpus())})"
    return None


def _threads() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return {0}
