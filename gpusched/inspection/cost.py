"""Work and time: operations of a kernel, and what a machine is expected to take for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpusched.emit.kernel import Kernel
from gpusched.emit.operations import OPERATIONS
from gpusched.machine import Machine

_FREE = frozenset(["positive", "conjugate"])


@dataclass(frozen=True)
class Work:
    """Scalar operations, of one element or of many."""

    simple: float = 0
    """Additions, multiplications, comparisons, conversions and the like."""
    heavy: float = 0
    """exp, log, sin, power and others that cost much more than an addition."""
    single: float = 0
    """How many of the heavy ones are in 32-bit numbers."""

    def __add__(self, other: Work) -> Work:
        return Work(self.simple + other.simple, self.heavy + other.heavy,
                    self.single + other.single)  # fmt: skip

    def __mul__(self, times: float) -> Work:
        return Work(self.simple * times, self.heavy * times, self.single * times)

    @property
    def operations(self) -> float:
        """All of them."""
        return self.simple + self.heavy


def work_of(kernel: Kernel) -> Work:
    """Return what a kernel does for one element that it goes through.

    Each operation of NumPy's counts as one, a reduction as one more for each result.

    Examples
    --------
    >>> from gpusched.emit.kernel import Kernel, Statement
    >>> from gpusched.inspection.cost import work_of
    >>> twice = Statement("exp", 0, (0,), "float32", "float32")
    >>> work_of(Kernel((), (), (twice,), (), ("map",)))
    Work(simple=0, heavy=1, single=1)
    """
    simple = heavy = single = 0
    for statement in kernel.statements:
        operation = OPERATIONS.get(statement.operation)
        if statement.operation in _FREE:
            continue
        if operation is not None and operation.heavy:
            heavy += 1
            single += np.dtype(statement.dtype).itemsize <= 4
        else:
            simple += 1
    simple += sum(output.combine is not None for output in kernel.outputs)
    return Work(simple, heavy, single)


def total(works: Iterable[Work]) -> Work:
    """Return the sum."""
    found = Work()
    for work in works:
        found = found + work
    return found


def compute_seconds(machine: Machine, work: Work) -> float:
    """Return the seconds that one thread is expected to compute."""
    double = work.heavy - work.single
    return (
        work.simple / machine.simple_rate
        + work.single / machine.heavy_rate_single
        + double / machine.heavy_rate_double
    )


def task_seconds(machine: Machine, moved: int, work: Work, launches: int) -> float:
    """Return the seconds that a task is expected to take on one thread, dask's own part left out.

    The slower of moving the bytes and computing, as both go on at once (Williams, Waterman and
    Patterson, Roofline, Communications of the ACM 52(4), 2009).
    """
    moving = moved / machine.bandwidth_one
    return max(moving, compute_seconds(machine, work)) + launches * machine.launch_seconds


def stage_seconds(machine: Machine, tasks: int, moved: int, work: Work, launches: int) -> float:
    """Return the seconds a stage is expected to take on all threads of the machine."""
    threads = max(1, min(machine.threads, tasks))
    bandwidth = min(machine.bandwidth_one * threads, machine.bandwidth_all)
    computing = compute_seconds(machine, work) / threads
    overhead = tasks * machine.task_seconds + launches * machine.launch_seconds / threads
    return max(moved / bandwidth, computing) + overhead
