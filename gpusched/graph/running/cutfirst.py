"""Pieces of chunks -> cut off before the calls that take them are recorded, or run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.array.chunk import getitem

from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.placed import Placed
from gpusched.plan.plan import Register, Registers
from gpusched.record.steps import ProgramStep
from gpusched.record.views import is_basic

if TYPE_CHECKING:
    from gpusched.graph.running.segment import Segment

NOT_A_VIEW = GraphBreak.INDEX("pieces of chunks that are not views of them")
RETURNED = GraphBreak.LAYOUT("a result that is a piece of a chunk")


class PieceReturnedError(Exception):
    """A result is a view of a piece that was cut off before: it has to be one of dask's piece."""


@dataclass(frozen=True)
class CutFirst:
    """A segment that takes but pieces of some inputs, which are cut before it is recorded.

    A plan holds for pieces of one shape then, wherever they are cut off; it would hold for one
    slice otherwise. Where chunks that are kept are computed with in pieces, that is a plan for each
    task: a daily anomaly of 10 chunks, persisted, is 4 recordings rather than 296, in a quarter of
    the processor time (0.18 and 0.74 s, 3 MB). Pieces are views: with dask's copies of small ones,
    slices took up to a sixth longer.
    """

    cuts: tuple[tuple[int, ProgramStep], ...]
    """The steps that cut pieces off, each with the register of its result."""
    rest: Segment
    """The other steps."""

    def run(self, registers: Registers, run: Callable[[Segment], object]) -> Reason | None:
        """Have the rest run on pieces; return why the whole has to run, with nothing done.

        All that go through a segment ask this: what runs it, explains it and debugs it.

        Parameters
        ----------
        registers
            Of the program; they hold the pieces meanwhile.
        run
            Gets the rest. Where it raises `PieceReturnedError`, it has done nothing.
        """
        try:
            if not self.apply(registers):
                return NOT_A_VIEW
            run(self.rest)
        except PieceReturnedError:
            return RETURNED
        finally:
            self.forget(registers)
        return None

    def apply(self, registers: Registers) -> bool:
        """Cut the pieces; return False, with nothing done, where one is not a view.

        A chunk in device memory gives pieces there.
        """
        for register, step in self.cuts:
            array, index = (registers[a.number] for a in step.args)
            try:
                cuts = is_basic(index, integers=False) and index != ()
                piece = _view(array, index) if cuts else None
            except IndexError:
                step.call(step.function, registers)  # which says it in dask's words
                raise
            if piece is None:
                self.forget(registers)
                return False
            registers[register] = piece
        return True

    def forget(self, registers: Registers) -> None:
        """Let go of the pieces."""
        for register, _ in self.cuts:
            registers[register] = None


def leading_cuts(steps: list[tuple[int, ProgramStep]], inputs: tuple[int, ...],
                 outputs: tuple[int, ...]) -> list[tuple[int, ProgramStep]]:  # fmt: skip
    """Return the steps that only index what a segment is given, by what it is given."""
    found: list[tuple[int, ProgramStep]] = []
    given, cut = set(inputs), set(inputs)
    for register, step in steps:
        indexes = step.function is operator.getitem or step.function is getitem
        if not indexes or step.kwargs or register in outputs or step.taken is not None:
            continue
        numbers = [a.number for a in step.args if type(a) is Register]
        if len(numbers) == len(step.args) == 2 and numbers[0] in cut and numbers[1] in given:
            found.append((register, step))
            cut.add(register)
    return found


def _view(array: Any, index: Any) -> Any:
    """Return a piece of an array of NumPy's or in device memory; None of anything else."""
    if type(array) is np.ndarray:
        return array[index]
    if type(array) is not Placed:
        return None
    try:
        return Placed(array.array[index])
    except IndexError:
        return None  # NumPy has another text for it.
