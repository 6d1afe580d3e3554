"""The steps of a segment as they run without kernels: in which order, and which on blocks."""

from __future__ import annotations

from itertools import chain

from gpusched.dataclass import dataclass
from gpusched.graph.functions.known import plain_for
from gpusched.graph.running.blocks import Blocks
from gpusched.graph.running.division import Steps, is_elementwise
from gpusched.plan.plan import Registers
from gpusched.record.catalogue import has
from gpusched.record.steps import ProgramStep


def call_each(
    steps: Steps,
    last_uses: tuple[tuple[int, ...], ...],
    registers: Registers,
    reported: bool = False,
) -> None:
    """Call functions as they are; those of dask's own where NumPy is to report their errors."""
    for (register, step), dying in zip(steps, last_uses, strict=True):
        function = plain_for(step.function) if reported else step.function
        registers[register] = step.call(function, registers)
        for each in dying:
            registers[each] = None


@dataclass(frozen=True)
class Unfused:
    """A segment's steps in the order in which they run without kernels."""

    steps: Steps
    last_uses: tuple[tuple[int, ...], ...]
    """By step, the registers that nobody reads after it."""
    parts: list[tuple[slice, Blocks | None]]
    """Those of them that can run on one block after the other, and None for what is between."""
    more: int = 0
    """Registers that they need besides the program's."""
    inlined: bool = False
    """Whether functions are what they call."""

    def run(self, registers: Registers) -> bool:
        """Call the functions; return False, in the middle, where one calls what runs whole."""
        waiting = self.parts[::-1]
        while waiting:
            where, part = waiting.pop()
            steps, ends = self.steps[where], self.last_uses[where]
            if part is not None and part.run(registers):
                for gone in chain.from_iterable(ends):
                    registers[gone] = None
            elif part is not None and part.parts:
                waiting += part.parts[::-1]
            elif part is not None and self.inlined:
                return False
            else:
                call_each(steps, ends, registers)
        return True


def arranged(steps: Steps) -> Steps:
    """Return the steps of a program in an order in which fewer views part elementwise calls.

    A view moves before the elementwise calls that precede it, if it reads none of their results: it
    computes nothing. A stencil of slices takes 51 ms so, rather than 88. Other calls stay where
    they are, as they may change what a view copies (`ravel` and `reshape` do with some layouts).

    Parameters
    ----------
    steps
        Calls, each with the register of its result, after what they read.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.steps import ProgramStep
    >>> from gpusched.graph.running.unfused import arranged
    >>> from gpusched.plan.plan import Register
    >>> steps = [
    ...     (3, ProgramStep(np.subtract, (Register(0), Register(1)))),
    ...     (4, ProgramStep(np.flip, (Register(2),))),
    ...     (5, ProgramStep(np.divide, (Register(3), Register(4)))),
    ... ]
    >>> [register for register, _ in arranged(steps)]
    [4, 3, 5]
    """
    done: Steps = []
    run: Steps = []
    for register, step in steps:
        if has(step.function, "view") and not _reads(step, run):
            done.append((register, step))
        elif is_elementwise(step):
            run.append((register, step))
        else:
            done += [*run, (register, step)]
            run = []
    return done + run


def _reads(step: ProgramStep, others: Steps) -> bool:
    """Return whether a step reads a result of some others."""
    return not step.registers.isdisjoint({register for register, _ in others})
