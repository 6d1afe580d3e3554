"""The cores that a worker's process is bound to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise


def allowed_cpus() -> tuple[int, ...]:
    """Return the cores that this process may use, which a batch system may have restricted.

    Examples
    --------
    >>> from gpusched.workers.affinity import allowed_cpus
    >>> len(allowed_cpus()) >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def choose(wanted: Iterable[int], allowed: Sequence[int]) -> tuple[int, ...]:
    """Return those of the wanted cores that are allowed, or all allowed ones if none is.

    Examples
    --------
    >>> from gpusched.workers.affinity import choose
    >>> choose([0, 1, 2], [1, 2, 3]), choose([8, 9], [0, 1])
    ((1, 2), (0, 1))
    """
    return tuple(sorted(set(wanted) & set(allowed))) or tuple(sorted(allowed))


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

    A refusal is no fault of the worker, which runs on the cores it has: batch systems allow a
    process some of the cores only, and answer EINVAL for the others.

    Examples
    --------
    >>> from gpusched.workers.affinity import allowed_cpus, pin
    >>> pin(allowed_cpus()) is None
    True
    """
    if not hasattr(os, "sched_setaffinity"):
        return "this operating system binds no process to cores"
    try:
        for thread in _threads():
            os.sched_setaffinity(thread, set(cpus))
    except ProcessLookupError:
        # A thread that has just ended needs no binding.
        return pin(cpus)
    except (OSError, ValueError) as error:
        return f"{error} (allowed are {list(allowed_cpus())})"
    return None


def _threads() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return [0]
