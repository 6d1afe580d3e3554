"""Steps that are recorded and have not run, and what stands in for their results."""

from __future__ import annotations

from collections.abc import Iterable

from gpusched.plan.plan import Registers, Step, written


class Postponed:
    """The steps of a recording that have not run.

    Parameters
    ----------
    contents
        The recorder's registers: each that one of these steps is to write holds an uninitialised
        array of its shape, dtype and strides, or a view of such a one.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, contents: Registers) -> None:
        self._contents = contents
        self._steps: list[Step] = []
        self._written: set[int] = set()
        """Registers that these write."""

    @property
    def steps(self) -> list[Step]:
        """The steps, in order."""
        return list(self._steps)

    def add(self, step: Step) -> None:
        """Add a step to the end."""
        self._steps.append(step)
        self._written |= written(step)

    def writes(self, registers: Iterable[int]) -> bool:
        """Return whether some of these registers are still to be written."""
        return not self._written.isdisjoint(registers)

    def run(self, steps: list[Step]) -> None:
        """Run all of them, as these steps do what they do."""
        for step in steps:
            self._let_go(written(self._steps.pop(0)) & self._written)
            step(self._contents)
        self._written.clear()

    def discard(self) -> None:
        """Let go of all that stands in for results: none of the steps is to run here."""
        self._let_go(self._written)

    def _let_go(self, registers: set[int]) -> None:
        for register in registers:
            self._contents[register] = None
