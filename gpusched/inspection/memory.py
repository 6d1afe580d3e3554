"""How much memory a task needs at most, and which bytes of its inputs its kernels need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpusched.fusion.plan import Call, Empty, Launch, Plan, Step
from gpusched.inspection.standins import extent
from gpusched.inspection.variant import KernelUse


def owner(array: Any) -> Any:
    """Return the array whose memory a view shows.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.memory import owner
    >>> whole = np.zeros(10)
    >>> owner(whole[2:][::2]) is whole
    True
    """
    while isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array


def held(arrays: Iterable[Any]) -> int:
    """Return the bytes of memory behind some arrays; what several show is counted once."""
    shown: dict[int, tuple[int, int]] = {}
    for array in {id(a): a for a in arrays if hasattr(a, "nbytes")}.values():
        whole = owner(array)
        so_far, _ = shown.get(id(whole), (0, 0))
        shown[id(whole)] = so_far + extent(array), extent(whole)
    return sum(min(pair) for pair in shown.values())


def written(step: Step) -> tuple[int, ...]:
    """Return the registers that a step writes."""
    if isinstance(step, Launch | Empty):
        return tuple(output.register for output in step.outputs)
    return step.results if isinstance(step, Call) else ()


def peak(plan: Plan, registers: list[Any], outside: list[Any]) -> int:
    """Return the most bytes held while a plan runs.

    Parameters
    ----------
    plan
        What was recorded.
    registers
        What its registers held at the end of the recording.
    outside
        Arrays that are kept alive meanwhile: the task's inputs and the results so far.
    """
    alive = {register for _, register in plan.arrays} | {r for r, _ in plan.constants}
    most = held([*outside, *(registers[r] for r in alive)])
    for step, dying in zip(plan.steps, plan.dying, strict=True):
        alive |= set(written(step))
        most = max(most, held([*outside, *(registers[r] for r in alive)]))
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
