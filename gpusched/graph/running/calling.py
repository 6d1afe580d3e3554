"""A segment's functions called as they are, without kernels: one by one, or on blocks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import collecting, heeded
from gpusched.graph.functions.known import plain_for
from gpusched.graph.running.blocks import Blocks, parts
from gpusched.graph.running.division import Steps, is_elementwise
from gpusched.graph.running.inlined import Inlining
from gpusched.plan.plan import Plan, Registers, last_uses
from gpusched.record.catalogue import has
from gpusched.record.steps import ProgramStep

Ends = tuple[tuple[int, ...], ...]
"""By call, the registers that nobody reads after it."""


class Calling:
    """Calls the functions of a segment.

    Parameters
    ----------
    steps
        Its calls.
    given
        The steps by which dask cuts pieces among its inputs off.
    kept, outputs
        Registers that are needed after the last call, and those of them that it writes.

    Notes
    -----
    Thread-safe: any of the orders that threads may have tried is right.
    """

    def __init__(
        self, steps: Steps, given: Steps, kept: set[int], outputs: tuple[int, ...]
    ) -> None:
        self.steps = steps
        self._given = given
        self._kept = kept
        self._outputs = outputs
        self.last_uses = self._last_uses(steps)

    def _last_uses(self, steps: Steps) -> Ends:
        return last_uses([{register, *step.registers} for register, step in steps], self._kept)

    def one_by_one(self, registers: Registers, reported: bool = False) -> None:
        """Call the functions; those of dask's own where their errors are wanted.

        Parameters
        ----------
        registers
            Of the program.
        reported
            Whether NumPy is to report floating-point errors.
        """
        self._cut_off(registers)
        for steps, ends, blocks in self._with_windows:
            if blocks is None or blocks.run_aloud(registers, reported) is not None:
                call_each(steps, ends, registers, reported)
                continue
            for gone in itertools.chain.from_iterable(ends):
                registers[gone] = None

    @cached_property
    def _with_windows(self) -> list[tuple[Steps, Ends, Blocks | None]]:
        """The calls in their order: those on sliding windows, which run on blocks, and others.

        With each, the registers that nobody reads after it.
        """
        if not any(step.function is sliding_window_view for _, step in self.steps):
            return [(self.steps, self.last_uses, None)]
        return [
            (self.steps[where], self.last_uses[where],
             part if isinstance(part, Blocks) and part.has_windows else None)
            for where, part in parts(self.steps, self._outputs)
        ]  # fmt: skip

    def on_blocks(self, registers: Registers, plan: Plan | None = None) -> None:
        """Call the functions, those on blocks of their arrays that can run so.

        Users' functions are what they have called while a plan was recorded, if there is one.
        """
        self._cut_off(registers)
        # Other threads may give it up at any time.
        # The plan may be one that another segment has made, of other functions of the same code.
        if plan is not None and (inlined := plan.unfused) is not None and self._calls(inlined.own):
            if _tried(inlined, registers):
                return
            plan.unfused = None
        if self._in_order.steps != self.steps:
            if _tried(self._in_order, registers):
                return
            self.keep_order()
        self._in_order.run(registers)

    def _calls(self, functions: tuple[Any, ...]) -> bool:
        return all(any(step.function is each for _, step in self.steps) for each in functions)

    @cached_property
    def _in_order(self) -> Unfused:
        return self._unfused(arranged(self.steps))

    def keep_order(self) -> None:
        """Make the calls in their own order from now on: another one may be tried in vain."""
        self._in_order = self._unfused(self.steps)

    def inlined(self, inlining: Inlining, more: int, users: set[int]) -> Unfused:
        """Return the calls with what users' functions have called in their place.

        Parameters
        ----------
        inlining
            What they have called.
        more
            Registers that this takes besides the program's.
        users
            Results of functions of the user's.
        """
        found = (inlining.steps.get(register, [(register, step)]) for register, step in self.steps)
        order = arranged(list(itertools.chain.from_iterable(found)))
        own = tuple([s.function for r, s in self.steps if r in users and r not in inlining.steps])
        return replace(self._unfused(order), more=more, inlined=True, own=own)

    def _unfused(self, order: Steps) -> Unfused:
        return Unfused(order, self._last_uses(order), parts(order, self._outputs))

    def _cut_off(self, registers: Registers) -> None:
        """Have dask cut off the pieces among the inputs, where results may be views of them."""
        for register, step in self._given:
            # A piece of a chunk in device memory has been copied to where it is read.
            if type(registers[step.args[0].number]) is np.ndarray:
                registers[register] = step.call(step.function, registers)


def _tried(calls: Unfused, registers: Registers) -> bool:
    """Run calls in another order; return False, with nothing done, if that cannot be.

    Errors would show the order. Where what a function calls does not run on blocks, the function
    itself does better: NumPy computes into the memory of operands that only it has.
    """
    tried: Registers = [*registers, *[None] * calls.more]
    errors: list[Any] = []
    try:
        with collecting(heeded(), errors.append):
            done = calls.run(tried)
    except Exception as error:  # noqa: BLE001  Raised again, in the order of the calls
        errors.append(error)
    if errors or not done:
        return False
    registers[:] = tried[: len(registers)]
    return True


def call_each(
    steps: Steps,
    last_uses: Ends,
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
    last_uses: Ends
    parts: list[tuple[slice, Blocks | None]]
    """Those of them that can run on one block after the other, and None for what is between."""
    more: int = 0
    """Registers that they need besides the program's."""
    inlined: bool = False
    """Whether functions are what they call."""
    own: tuple[Any, ...] = ()
    """Functions of the user's that are called themselves."""

    def run(self, registers: Registers) -> bool:
        """Call the functions; return False, in the middle, where one calls what runs whole."""
        waiting = self.parts[::-1]
        while waiting:
            where, part = waiting.pop()
            steps, ends = self.steps[where], self.last_uses[where]
            if part is not None and part.run(registers):
                for gone in itertools.chain.from_iterable(ends):
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
    >>> from gpusched.graph.running.calling import arranged
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
