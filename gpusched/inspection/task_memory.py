"""How much memory a task needs at most, and which bytes of its inputs its kernels need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpusched.backends.buffer_pool import owner
from gpusched.inspection.standins import MAPPED, extent, fresh
from gpusched.inspection.temporaries import temporaries
from gpusched.inspection.variant import KernelUse
from gpusched.plan.plan import Call, Plan, Step, reads, written
from gpusched.plan.unjoined import UnjoinedLaunch


def untouched(made: Any, given: Iterable[Any]) -> Any:
    """Return what stands in for an array that a call has made, in pages that nothing has touched.

    The system has no memory for those, however many chunks are stood in for at a time. Views of
    what the call was given, and small arrays, stay as they are.

    Parameters
    ----------
    made
        What the call has returned.
    given
        The arrays that it was given.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.task_memory import untouched
    >>> x = np.ones(1_000_000)
    >>> untouched(x[1:], [x])[0], untouched(x + 1, [x])[0]
    (np.float64(1.0), np.float64(0.0))
    """
    large = isinstance(made, np.ndarray) and made.base is None and extent(made) >= MAPPED
    return fresh(made) if large and not any(owner(each) is made for each in given) else made


def held(arrays: Iterable[Any]) -> int:
    """Return the bytes of memory behind some arrays; what several show is counted once.

    Of an array that is larger than what the others show of it, what they show counts: the rest is
    not the task's. Nor are the pages of files.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.task_memory import held
    >>> x = np.zeros((100, 10))
    >>> held([x[:50], x[:50].T, np.zeros(5)])
    4040
    """
    shown: dict[int, dict[Any, int]] = {}
    wholes: dict[int, int] = {}
    for array in {id(a): a for a in arrays if hasattr(a, "nbytes")}.values():
        whole = owner(array)
        if isinstance(whole, np.memmap):
            continue
        size = extent(array)
        place = array.ctypes.data if isinstance(array, np.ndarray) else id(array)
        shown.setdefault(id(whole), {})[place, size] = size
        wholes[id(whole)] = extent(whole)
    return sum(min(sum(parts.values()), wholes[which]) for which, parts in shown.items())


def peak(plan: Plan, steps: Iterable[tuple[Step, tuple[int, ...]]], registers: list[Any],
         outside: list[Any]) -> int:  # fmt: skip
    """Return the most bytes held while a plan runs.

    Parameters
    ----------
    plan
        What was recorded.
    steps
        What is run of it, each step with the registers that are let go after it.
    registers
        What its registers held at the end of the recording.
    outside
        Arrays that are kept alive meanwhile: the task's inputs and the results so far.
    """
    alive = {register for _, register in plan.arrays} | {r for r, _ in plan.constants}
    shared = {id(owner(array)) for array in outside}
    # Of what the plan makes, the whole is there as long as a view of it; the rest is there anyway.
    wholes = [None if id(owner(array)) in shared else owner(array) for array in registers]
    most = held([*outside, *(wholes[r] for r in alive)])
    for step, dying in steps:
        alive |= written(step)
        more = 0
        if isinstance(step, Call):
            given = [registers[r] for r in reads(step)]
            more = temporaries(step.function, given) or 0
        if isinstance(step, UnjoinedLaunch):
            more = step.largest_copy
        most = max(most, held([*outside, *(wholes[r] for r in alive)]) + more)
        alive -= set(dying)
    return most


def needed(uses: list[KernelUse], inputs: list[Any]) -> int:
    """Return the bytes of the inputs that kernels read, as if each read its part once."""
    owners = {id(owner(a)): extent(owner(a)) for a in inputs}
    most = dict.fromkeys(owners, 0)
    for use in uses:
        read: dict[int, int] = {}
        for register in use.builder.registers:
            array = use.builder.arrays[register]
            if id(owner(array)) in owners:
                shown = read.get(id(owner(array)), 0) + array.size * array.itemsize
                read[id(owner(array))] = min(shown, owners[id(owner(array))])
        for which, count in read.items():
            most[which] = max(most[which], count)
    return sum(most.values())
