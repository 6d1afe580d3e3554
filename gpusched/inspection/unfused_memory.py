"""What a task holds in memory where its functions are called one by one, as dask calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.array.chunk import getitem

from gpusched.adapters.tasks import Task, execute_subgraph
from gpusched.backends.buffer_pool import owner
from gpusched.graph.functions.known import computes, together
from gpusched.graph.functions.partials import bare
from gpusched.graph.programs.program import Program
from gpusched.graph.running.segment import Segment
from gpusched.inspection.standins import arrays_in
from gpusched.inspection.task_memory import held
from gpusched.inspection.temporaries import temporaries
from gpusched.record.chunk import LazyChunk
from gpusched.record.steps import ProgramStep


@dataclass(frozen=True)
class Called:
    """What one call of a task does to memory."""

    given: list[Any]
    """Arrays it reads."""
    made: list[Any]
    """Arrays it returns, views of what it was given included."""
    more: int | None
    """Bytes that it allocates besides; None where that is not known."""


def peak_of_calls(
    calls: list[Called], outside: list[Any], results: list[Any], dying: list[Any] | None = None
) -> tuple[int, bool]:
    """Return the most bytes held while functions are called one by one, as dask calls them.

    Parameters
    ----------
    calls
        In their order; each lets go of what it is the last to read.
    outside
        Arrays that are kept alive meanwhile.
    results
        Arrays that are kept once they are there.
    dying
        Arrays that are alive at first, and kept no longer than the calls read them.

    Returns
    -------
    tuple[int, bool]
        Bytes, and whether there were no more; functions that are not known may need more.
    """
    last = {id(owner(a)): number for number, call in enumerate(calls) for a in call.given}
    last |= dict.fromkeys((id(owner(a)) for a in (*outside, *results)), len(calls))
    alive = [*outside, *(dying or ())]
    most = held(alive)
    for number, call in enumerate(calls):
        alive += call.made
        most = max(most, held(alive) + (call.more or 0))
        alive = [a for a in alive if last.get(id(owner(a)), -1) > number]
    return most, all(call.more is not None for call in calls)


class Holding:
    """What the registers of one task's program hold where its functions are called one by one.

    Parameters
    ----------
    inputs
        What stands in for the task's inputs, which are alive until its end.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, inputs: list[Any]) -> None:
        self.given = arrays_in(inputs)
        self.made = {number: arrays_in(value) for number, value in enumerate(inputs)}
        """Arrays by register."""
        self._pieces: dict[int, Any] = {}
        """By identity, what was cut off arrays that are there as a whole."""

    def alive(self, registers: list[Any]) -> list[Any]:
        """Return the arrays that a running task holds, those left out that show a part of one."""
        found = (each for each in arrays_in(registers) if id(each) not in self._pieces)
        return [*self.given, *found]

    def note(self, segment: Segment, local: list[Any], registers: list[Any]) -> None:
        """Note what the calls of a segment return, once it is recorded and gone through."""
        for register, step in segment.steps:
            chunks = lazy_in(local[register])
            if register in segment.outputs and step.function is not together:
                # The very arrays that later segments are given, as each counts once.
                self.made[register] = arrays_in(registers[register])
            elif not computes(step.function):
                shown = [a for r in sorted(step.registers) for a in self.made[r]]
                self.made[register] = _copied(step.function, chunks, shown)
            elif chunks:
                self.made[register] = [np.zeros(c.shape, c.dtype) for c in chunks]
            else:
                self.made[register] = arrays_in(local[register])

    def cut_off(self, cuts: Sequence[tuple[int, ProgramStep]], registers: list[Any]) -> None:
        """Note the pieces that are cut off what a segment is given, before it is recorded."""
        for register, step in cuts:
            shown = [a for r in sorted(step.registers) for a in self.made[r]]
            piece = self._pieces[id(registers[register])] = registers[register]
            self.made[register] = _copied(step.function, [piece], shown)

    def called(self, segment: Segment, before: list[Any]) -> tuple[int, bool]:
        """Return the most bytes held while a segment's functions are called, one by one."""
        results = [a for k in segment.outputs for a in self.made[k]]
        kept = [v for k, v in enumerate(before) if k not in segment.dying]
        dying = arrays_in([before[k] for k in segment.dying])
        calls = self._calls(segment.steps)
        return peak_of_calls(calls, self.alive(kept), results, dying)

    def unfused(self, program: Program, labels: list[Any], node: Any) -> tuple[int, bool]:
        """Return the most bytes held while dask runs a task."""
        calls = self._calls(list(enumerate(program.steps, program.inputs)))
        numbers = {key: number for number, key in enumerate(labels)}
        for until, keys in kept_through(node):
            if until in numbers:
                kept = [a for k in keys if k in numbers for a in calls[numbers[k]].made]
                calls[numbers[until]].given.extend(kept)
        return peak_of_calls(calls, self.given, calls[-1].made)

    def _calls(self, steps: list[tuple[int, ProgramStep]]) -> list[Called]:
        found = []
        for register, step in steps:
            given = [a for r in sorted(step.registers) for a in self.made[r]]
            found.append(Called(given, self.made[register], temporaries(step.function, given)))
        return found


def kept_through(node: Any) -> list[tuple[Any, list[Any]]]:
    """Return, for each task of several that is inside another, its last key and what it is given.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.inspection.unfused_memory import kept_through
    >>> inner = Task.fuse(Task("b", abs, TaskRef("a")), Task("c", abs, TaskRef("b")))
    >>> kept_through(Task.fuse(Task("a", abs, TaskRef("x")), inner))
    [('c', ['a']), ('c', ['x'])]
    """
    if not isinstance(node, Task) or node.func is not execute_subgraph:
        return []
    inner, last, _, *given = node.args
    found = [each for task in inner.values() for each in kept_through(task)]
    found += [each for task in given for each in kept_through(task)]
    return [*found, (last, [getattr(item, "key", None) for item in given])]


def _copied(function: Any, chunks: Sequence[Any], shown: list[Any]) -> list[Any]:
    """Return what a view is made of: what it shows, or the copy that dask makes of a small part."""
    if bare(function) is getitem and len(chunks) == len(shown) == 1:
        part = chunks[0]
        if owner(shown[0]).size >= 2 * part.size:
            return [np.zeros(part.shape, part.dtype)]
    return shown


def lazy_in(value: Any) -> list[LazyChunk]:
    """Return the lazy chunks that a call has returned."""
    if isinstance(value, LazyChunk):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [v for v in value if isinstance(v, LazyChunk)] if isinstance(value, list | tuple) else []
