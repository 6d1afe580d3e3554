"""A segment's calls on lazy chunks: what they record, and what stands for their results."""

from __future__ import annotations

import itertools
import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.backends.devices import device_of
from gpusched.breaks import GraphBreak, Reason
from gpusched.config import ChoiceError
from gpusched.graph.functions.partials import bare
from gpusched.graph.running.cutfirst import PieceReturnedError
from gpusched.graph.running.decisions import Direct
from gpusched.graph.running.inlined import Inlining
from gpusched.graph.running.inputs import NESTED, small
from gpusched.graph.running.results import ResultRegisters, gains_alone, unseen
from gpusched.graph.safety.kinds import is_constant
from gpusched.graph.safety.outside import is_warning
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.grids import is_join
from gpusched.plan.overrides import OverrideError
from gpusched.plan.plan import Launch, Registers
from gpusched.record.catalogue import has
from gpusched.record.chunk import (
    LazyChunk,
    chunks_in,
    is_scalar,
    lazies,
    node_of,
    seen_by_others,
    was_own,
)
from gpusched.record.record import Recorder
from gpusched.record.steps import ProgramStep

if TYPE_CHECKING:
    from gpusched.graph.running.segment import Segment
    from gpusched.graph.safety.examination import Examination

__gpusched_calls_programs__ = True

VIEW, LAUNCH, CALL, BANDWIDTH = 4e-6, 20e-6, 1e-6, 10e9
"""Seconds that a plan takes for a view and a launch, those of a call of NumPy's, and bytes per
second (AMD EPYC). Of 4 steps of a heat equation in place, a plan of 372 views and 33 launches took
2.1 ms for chunks of 100 x 100, where NumPy took 0.4, and 15 ms for those of 1000 x 1000, where
NumPy took 49."""
PARTS = GraphBreak.NO_GAIN("parts of arrays that take longer to compute one by one")
ALONE = GraphBreak.ALONE("nothing to fuse it with")

Call = tuple[int, Callable[..., Any], ProgramStep]
"""The register of a call's result, what is called with lazy chunks, and the step that it is."""


class StoppedError(UnrecordableError):
    """A call has done what cannot be recorded: those before and after it are, without it."""


class Trace:
    """The calls of a segment, made with lazy chunks instead of its inputs.

    Parameters
    ----------
    segment
        Whose calls.
    recorder
        What records them.
    inputs
        Of the segment, with the arrays that its functions read from outside (`Segment.values`).
    registers
        Of the program, in which nothing is left.
    examination
        What is known of the user's functions; what `Segment.examined` returns if None.
    inlining
        What follows the calls that users' functions make; None if nobody does.

    Raises
    ------
    UnrecordableError
        If they cannot be recorded.
    StoppedError
        If one of them cannot, or gives something else than arrays, of which no plan can be kept.
    """

    def __init__(self, segment: Segment, recorder: Recorder, inputs: tuple[Any, ...],
                 registers: Registers, examination: Examination | None = None,
                 inlining: Inlining | None = None) -> None:  # fmt: skip
        self.segment, self.recorder = segment, recorder
        self.local: Registers = list(registers)
        """What the program's registers hold then."""
        self._arrays: list[tuple[int, int]] = []
        numbers = itertools.count()
        given = [_lazy(value, recorder, numbers, self._arrays) for value in inputs]
        for register, value in zip(segment.inputs, given, strict=False):
            self.local[register] = value
        for register, _ in segment.given:
            if isinstance(piece := self.local[register], LazyChunk):
                recorder.pieces.add(node_of(piece))
        examination = examination or segment.examined()
        read = dict(zip(map(id, examination.arrays), given[len(segment.inputs) :], strict=True))
        if not all(type(value) is LazyChunk for value in read.values()):
            recorder.stop(GraphBreak.DTYPE("an array from outside has a dtype of no kernel's now"))
        calls = _bound(segment, examination, recorder, read)
        own = set(map(id, segment.own))
        self._own = {register for register, step in segment.steps if id(step) in own}
        self._handles = examination.handles
        with recorder.own_numbers():
            for call, gone in zip(calls, segment.calling.last_uses, strict=True):
                self._call(*call, inlining)
                recorder.gone.update([id(self.local[k]) for k in gone])
        if recorder.stopped is not None:
            raise recorder.stopped  # whoever has caught it

    def _call(self, register: int, function: Callable[..., Any], step: ProgramStep,
              inlining: Inlining | None) -> None:  # fmt: skip
        self.recorder.step, local = register, self.local
        if register in self._own:
            function = partial(of_the_users, self.recorder, function)
            if self._handles:
                function = partial(with_nothing_to_handle, self.recorder, function)
        if inlining is not None and register in self.segment.users:
            given = {k: local[k] for k in step.registers}
            call = partial(step.call, function, local)
            local[register] = inlining.follow(self.recorder, register, given, call)
        else:
            local[register] = step.call(function, local)
        escape = self.recorder.escape
        if escape is None or self.recorder.moved or register in self.segment.users:
            return
        if escape.kind is GraphBreak.NOT_ARRAYS:
            raise StoppedError(escape)

    @property
    def arrays(self) -> tuple[tuple[int, int], ...]:
        """For each array its number among the inputs made `flat`, and the recorder's register."""
        return tuple(self._arrays)

    @property
    def results(self) -> list[Any]:
        """What the calls have given, in the order of the segment's outputs."""
        return [self.local[k] for k in self.segment.outputs]

    def too_little(self) -> Direct | None:
        """Return the decision that there is nothing to gain, before anything has been compiled."""
        recorder, bounds = self.recorder, self.segment.overrides.bounds
        if recorder.moved or recorder.spared:
            return None
        if not self.segment.joins:
            most = max((math.prod(node.shape) for node in recorder.nodes()), default=0)
            reason = small(most, bounds.elements, self.segment.varies)
            if reason is not None:
                return Direct(self.segment.operation(0), reason)  # as those seen to be small
        if recorder.launched or recorder.operations >= bounds.operations:
            return None
        if gains_alone(recorder, bounds.single):
            return None
        moves = recorder.operations == 0 and all(_moves(s.function) for _, s in self.segment.steps)
        alone = GraphBreak.NO_GAIN("only moves elements") if moves else ALONE
        return self.segment.without(alone)

    def costs_more(self) -> Direct | None:
        """Return the decision that calls take less time than what `structures` has recorded.

        That is asked of arrays that are computed part by part: each part is a launch, and what is
        read of several parts are many views.

        Raises
        ------
        StoppedError
            If they are of a function of the user's: calls before and after it are recorded.
        """
        recorder, bounds = self.recorder, self.segment.overrides.bounds
        if recorder.moved or recorder.spared or not recorder.in_parts or not bounds.elements:
            return None
        launches = [step for step in recorder.steps if isinstance(step, Launch)]
        views = len(recorder.steps) - len(launches)
        moved = sum(each.bytes_read + each.bytes_written for each in launches)
        calls, asked = recorder.asked
        planned = VIEW * views + LAUNCH * len(launches) + moved / BANDWIDTH
        if not calls or planned <= calls * CALL + asked / BANDWIDTH:
            return None
        if len(self._own) == 1:
            (recorder.step,) = self._own
            raise StoppedError(PARTS)
        return self.segment.without(PARTS)

    def structures(self) -> tuple[Any, ...]:
        """Return the outputs as structures of registers, which nothing has been written to yet."""
        recorder, segment = self.recorder, self.segment
        wanted = lazies(self.results)
        if segment.users and recorder.device.can.errors:
            wanted += unseen(recorder, wanted, segment.users)
        recorder.flush(wanted)
        if segment.given and any(recorder.register(node) in recorder.pieces for node in wanted):
            raise PieceReturnedError
        made = ResultRegisters(recorder)
        return tuple(map(made.reference, self.results))

    def finish(self, registers: Registers, structures: tuple[Any, ...]) -> None:
        """Compute the outputs, of which `structures` has been asked for, into `registers`."""
        for k, structure in zip(self.segment.outputs, structures, strict=True):
            registers[k] = self.recorder.fetch(structure)


def _lazy(value: Any, recorder: Recorder, numbers: Iterator[int],
          arrays: list[tuple[int, int]]) -> Any:  # fmt: skip
    """Return an input with lazy chunks instead of arrays, whose places are noted."""
    # A closure that called itself would keep the recorder, and with it every array of the
    # recording, until the garbage collector came by.
    if type(value) in NESTED:
        return type(value)(_lazy(item, recorder, numbers, arrays) for item in value)
    number = next(numbers)
    if device_of(value) is None:
        return value
    leaf = recorder.leaf(value)
    arrays.append((number, leaf.register))
    recorder.given.add(leaf.register)
    return LazyChunk(recorder, leaf)


def of_the_users(recorder: Recorder, function: Callable[..., Any], /, *args: Any,
                 **kwargs: Any) -> Any:  # fmt: skip
    """Return what a function of the user's gives that was shown to be safe.

    Raises
    ------
    StoppedError
        If it does what cannot be recorded.
    UnrecordableError
        If kernels are missing, of which it needs results.
    """
    recorder.closed, recorder.made, recorder.items = True, 0, 0
    try:
        if not seen_by_others((args, kwargs)):
            recorder.stop(GraphBreak.NO_ARRAY("is given no chunk"))
        found = function(*args, **kwargs)
        if not _is_result(found):
            recorder.stop(GraphBreak.OWN_CODE(f"returns a {type(found).__name__}"))
        return found
    except TypeError as error:
        if not is_warning(error):
            raise
        told = f"your function warns{_line(error)}"
        raise StoppedError(GraphBreak.OWN_CODE(told)) from error
    except UnrecordableError as error:
        if recorder.missing:
            raise
        told = f"your function {error.reason}{_line(error)}"
        raise StoppedError(error.reason.told(told)) from error
    finally:
        recorder.closed = False


def with_nothing_to_handle(recorder: Recorder, function: Callable[..., Any], /, *args: Any,
                           **kwargs: Any) -> Any:  # fmt: skip
    """Return what a function gives that is recorded without its handlers of exceptions.

    Raises
    ------
    StoppedError
        If it raises what it may handle, or may do so for other chunks where nobody asks it then.
    """
    if recorder.moved or not recorder.device.can.host_memory:
        raise StoppedError(_may_handle("what other arrays than NumPy's raise"))
    warned = len(recorder.warned)
    try:
        with np.errstate():  # As it is now: `with` statements do not put it back.
            found = function(*args, **kwargs)
    except (UnrecordableError, OverrideError, ChoiceError):
        raise
    except Exception as error:
        raise StoppedError(_may_handle(f"a {type(error).__name__}{_line(error)}")) from error
    if len(recorder.warned) > warned:
        raise StoppedError(_may_handle("a warning"))
    return found


def _may_handle(what: str) -> Reason:
    return GraphBreak.OWN_HANDLES(f"your function may handle {what}")


def _of_its_own(recorder: Recorder, function: Callable[..., Any], /, *args: Any,
                **kwargs: Any) -> Any:  # fmt: skip
    """Return what a function gives that reads arrays from outside; stop if it may be one of them.

    Nobody knows of these who asks whether a call may change what another one reads.
    """
    found = function(*args, **kwargs)
    if not all(was_own(chunk) or is_scalar(chunk) for chunk in chunks_in(found)):
        recorder.stop(GraphBreak.CONFLICT("may return an array from outside, or a view of one"))
    return found


def _is_result(value: Any) -> bool:
    """Return whether a plan may give what a function returns: arrays and numbers, or a tuple."""
    if type(value) is tuple:
        return all(map(_is_result, value))
    return type(value) is LazyChunk or is_constant(value)


def _line(error: BaseException) -> str:
    """Return the line of the user's in which something has ended the recording."""
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("gpusched", "numpy")
    ]
    return f" (line {lines[-1]})" if lines and "line " not in str(error) else ""


def _moves(function: Any) -> bool:
    """Return whether a function only moves elements, or shows or joins arrays of them."""
    inner = bare(function)
    return has(inner, "moves") or has(inner, "view") or is_join(inner)


def _bound(segment: Segment, examination: Examination, recorder: Recorder,
           arrays: dict[int, LazyChunk]) -> list[Call]:  # fmt: skip
    """Return a segment's calls, of the user's functions those that read what was examined."""
    if examination.refused:
        return segment.calls
    outsides = dict(zip(map(id, segment.own), examination.outsides, strict=True))
    found = list(segment.calls)
    for k, (register, function, step) in enumerate(found):
        if id(step) in outsides:
            bound = outsides[id(step)].bound(recorder, arrays)
            called = bound.value(function)
            if outsides[id(step)].arrays:
                called = partial(_of_its_own, recorder, called)
            given = replace(step, args=bound.value(step.args), kwargs=bound.values(step.kwargs))
            found[k] = register, called, given
    return found
