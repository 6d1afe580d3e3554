"""Calls inside a chunk task that run together: recorded once, then repeated from a plan."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import dask
import numpy as np
from dask.array.chunk import getitem

from gpusched import config, forks
from gpusched.backends.devices import Device, device_of
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.floatingpoint import collecting, heeded, take
from gpusched.emit.kernel import EXACT
from gpusched.emit.operations import replaced
from gpusched.graph import decisions
from gpusched.graph.cutfirst import CutFirst, leading_cuts
from gpusched.graph.decisions import Direct, Remaining, Waiting, Ways, warn_once
from gpusched.graph.inlined import Inlining
from gpusched.graph.inputs import NESTED, describe, first_device, flat, obstacle
from gpusched.graph.known import known, substitute_for
from gpusched.graph.moved import Moved
from gpusched.graph.partials import name_of
from gpusched.graph.results import ResultRegisters, gains_alone
from gpusched.graph.safety.examination import NOTHING, Examination, is_own, reasons
from gpusched.graph.tiled import Tiled, arranged, call_each, parts
from gpusched.graph.unrecorded import in_c_order, is_array, is_plain, layouts, strides
from gpusched.newest import Newest
from gpusched.placed import hosted
from gpusched.plan import shortage, tiers
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.grids import is_join
from gpusched.plan.overrides import NONE, OverrideError
from gpusched.plan.plan import Plan, Registers, ReplayError, last_uses
from gpusched.record.chunk import LazyChunk, chunks_in, lazies, node_of, was_own
from gpusched.record.record import Recorder, error_state
from gpusched.record.steps import ProgramStep
from gpusched.store.handles import Runnable
from gpusched.store.statistics import updating

PLANS = 128
"""Plans one segment remembers; the oldest goes first."""
CONSTANTS = 1 << 20
"""Bytes of the arrays that these plans hold, if there are several such plans."""
WAYS = 8
"""Plans for chunks of one kind by which functions go different ways. Each that does not hold may
have run in vain, and some functions go another way for each chunk."""

NOT_COMPILED = GraphBreak.NOT_COMPILED("its kernels are not compiled yet")
"""Why a task whose arrays could be moved to the device runs on the host."""
REPORTED = GraphBreak.NEEDS_HOST("NumPy reports the floating-point errors of its own numbers")
"""Why one is repeated there."""


_Recorder = TypeVar("_Recorder", bound=Recorder)

Call = tuple[int, Callable[..., Any], ProgramStep]
"""The register of a call's result, what is called with lazy chunks, and the step that it is."""

OTHER_WAYS = GraphBreak.OWN_DECIDES(f"its functions go more than {WAYS} ways, as chunks decide")
OTHER_LAYOUT = GraphBreak.LAYOUT("its result would have another layout in memory than NumPy's")
RETURNED = GraphBreak.LAYOUT("a result that is a piece of a chunk")


class PieceReturnedError(Exception):
    """A result is a view of a piece that was cut off before: it has to be one of dask's piece."""


class Segment:
    """Calls that run together.

    Parameters
    ----------
    steps
        The calls, each with the register of its result.
    inputs, outputs
        Registers it reads and those it leaves for others.
    recorded
        Whether the functions take lazy chunks; if not, they are just called.
    dying
        Registers among the inputs that nobody reads later: what they hold is let go of.

    Notes
    -----
    Thread-safe: plans are immutable, and a plan recorded twice at once is as good as one.
    """

    def __init__(self, steps: list[tuple[int, ProgramStep]], inputs: tuple[int, ...],
                 outputs: tuple[int, ...], recorded: bool,
                 dying: tuple[int, ...] = ()) -> None:  # fmt: skip
        self.steps = steps
        self.inputs = inputs
        self.outputs = outputs
        self.recorded = recorded
        self.dying = dying
        self.last_uses = self._last_uses(steps)
        """By call, the registers that nobody reads after it."""
        self.overrides = NONE
        """Users' versions of kernels, before the first run."""
        self.calls = [(r, substitute_for(s.function), s) for r, s in steps]
        self.replayed = all(step.replayed for _, step in steps)
        self.joins = any(is_join(step.function) for _, step in steps)
        """Whether small inputs may become a large one."""
        self.errors = error_state()
        """What `numpy.errstate` says where the program is made, which is part of its identity."""
        self.remaining = Remaining()
        """Of the program."""
        self.shown = False
        """Whether functions that are not recorded may see the memory layout of the results."""
        self.returns = False
        """Whether a later segment of the program needs the results in host memory."""
        self._plans: Newest[Any, Plan | Ways | Direct | Waiting] = Newest(PLANS)
        self._news = ""
        """Why the next inputs are recorded, where it is not for what they are."""
        self._lock = forks.lock()
        self._own = [step for _, step in steps if recorded and is_own(step)]
        self._users = {
            register for register, step in steps if recorded and not known(step.function)
        }
        """Results of functions of the user's, which may compute what they only want checked."""
        self._examination: Examination | None = None
        self.unsafe = [] if recorded else reasons(step for _, step in steps)
        self.cut: CutFirst | None = None
        """How to run with pieces of its inputs, where nothing else is taken of some."""
        self.given: tuple[tuple[int, ProgramStep], ...] = ()
        """The steps by which dask cuts pieces among its inputs off, and copies the small ones: here
        they are views of the chunks."""

    def _last_uses(self, steps: list[tuple[int, ProgramStep]]) -> tuple[tuple[int, ...], ...]:
        kept = set(self.inputs).difference(self.dying) | set(self.outputs)
        return last_uses([{register, *step.registers} for register, step in steps], kept)

    def as_it_is(self, inputs: Sequence[Any]) -> Segment:
        """Return calls of partial applications that were changed since; or the segment itself."""
        steps = [(register, step.as_it_is(inputs)) for register, step in self.steps]
        if all([new is old for (_, new), (_, old) in zip(steps, self.steps, strict=True)]):
            return self
        return Segment(steps, self.inputs, self.outputs, False, self.dying)

    def run(self, registers: Registers) -> None:
        """Read the inputs from `registers` and write the outputs there."""
        count = shortage.wanted()
        if not (count > 1 and self.recorded and self._run_in_pieces(registers, count)):
            self.run_whole(registers, short=count > 1)
        for register in self.dying:
            registers[register] = None

    def _run_in_pieces(self, registers: Registers, count: int) -> bool:
        from gpusched.graph import pieces  # Few processes are ever short of memory.

        return pieces.run(self, registers, count)

    def run_whole(self, registers: Registers, short: bool = False) -> None:
        """Do what `run` does, on the whole chunks.

        Parameters
        ----------
        registers
            As in `run`.
        short
            Whether memory is short. Then kernels are waited for, where they are compiled at all:
            they leave nothing between the calls.
        """
        if not self.recorded:
            if self.unsafe:
                with updating() as counters:
                    counters.breaks.update(self.unsafe)
            return self.call(registers)
        if self.cut is not None:
            try:
                if self.cut.run(registers):
                    return None
            except PieceReturnedError:
                self.cut = None
                with updating() as counters:
                    counters.apart["slice", RETURNED] += 1
        inputs = tuple([registers[k] for k in self.inputs])
        examination = self.examined()
        if examination.refused:
            return self._direct(Direct(*examination.refused), registers)
        moved = registers if isinstance(registers, Moved) else None
        key = self.key(inputs, moved is not None)
        found = self._plans.get(key) if key is not None else None
        ways: Ways | None = None
        if found is None and moved is None:
            found = self._decide(inputs, key)
        if isinstance(found, Waiting):
            if tiers.missing(found.kernels):
                self._unfused(found.kernels, key, inputs, registers)
                return None
        elif isinstance(found, Plan):
            if not (found.ready or self._is_ready(found)):
                self._unfused(found.kernels, key, inputs, registers, found)
                return None
            if moved is not None:
                inputs = moved.on_device()
            try:
                return self._replay(found, inputs, registers)
            except ReplayError:
                with self._lock:
                    self._plans.pop(key, None)
                self._news = decisions.OTHER_RESULT
                ways = Ways((found,)) if found.branches else None
        elif isinstance(found, Ways):
            if self._go_one(found, key, inputs, registers):
                return None
            if len(found.plans) == WAYS:
                return self._direct(self._without(OTHER_WAYS), registers, key)
            self._news, ways = decisions.OTHER_RESULT, found
        if isinstance(found, Direct):
            return self._direct(found, registers)
        if moved is not None:
            inputs = moved.on_device()
        return self._record(inputs, key, registers, examination, short, ways)

    def _go_one(self, ways: Ways, key: Any, inputs: tuple[Any, ...], registers: Registers) -> bool:
        """Run the plan that holds for some inputs; return False if none does.

        While kernels of one are missing, that one may hold: the functions are called as they are.
        """
        missing: tuple[Runnable, ...] = ()
        for plan in ways.plans:
            if not (plan.ready or self._is_ready(plan)):
                missing += plan.kernels
                continue
            try:
                self._replay(plan, inputs, registers)
            except ReplayError:
                continue
            if plan is not ways.plans[0]:
                with self._lock:
                    # What functions read may have changed since, so that these hold no more.
                    if self._plans.get(key) is ways:
                        self._plans[key] = ways.first(plan)
            return True
        if missing:
            self._unfused(missing, key, inputs, registers)
        return bool(missing)

    def cut_first(self) -> None:
        """Have pieces of NumPy's arrays cut before the rest is recorded, where that can be done."""
        leading = leading_cuts(self.steps, self.inputs, self.outputs) if self.recorded else []
        if not leading or len(leading) == len(self.steps):
            return
        cuts = {register for register, _ in leading}
        rest = [(r, step) for r, step in self.steps if r not in cuts]
        needed = set().union(*(step.registers for _, step in rest)) - {r for r, _ in rest}
        inner = Segment(rest, tuple(sorted(needed)), self.outputs, True)
        inner.overrides, inner.remaining = self.overrides, self.remaining
        inner.shown = self.shown
        inner.given = tuple((r, step) for r, step in leading if step.function is getitem)
        self.cut = CutFirst(tuple(leading), inner)

    def _is_ready(self, plan: Plan) -> bool:
        """Return whether a plan's kernels are compiled by now."""
        plan.ready = not tiers.missing(plan.kernels)
        return plan.ready

    def _unfused(self, kernels: tuple[Runnable, ...], key: Any, inputs: tuple[Any, ...],
                 registers: Registers, plan: Plan | None = None,
                 planned: Any = None) -> bool:  # fmt: skip
        """Call the functions as they are, or CuPy's as a plan says, as kernels are missing.

        Returns
        -------
        bool
            Whether the results have the layout that is `planned`, if one is.
        """
        by_calls = _by_calls(plan, registers) if plan is not None else None
        launches = plan.names if plan is not None else ()
        error = tiers.failure(kernels)
        if error is not None:
            direct = self._refused(error, GraphBreak.COMPILATION, inputs, registers, by_calls)
            if by_calls is None:
                self._direct(direct, registers, key)
                return True
            with updating() as counters:
                counters.breaks[direct.operation, direct.reason] += 1
        self.remaining.tasks -= 1
        left, graph = self.remaining.tasks, self.remaining.graph
        if isinstance(registers, Moved):
            if by_calls is not None:
                given = flat(registers.on_device())
                take()
                with tiers.Unfused(kernels, left, graph, first_device(given), launches):
                    results, _ = by_calls.run(given)
                self._keep(by_calls, results, registers)
                return True
            registers.leave(kernels[0].name, NOT_COMPILED)
        device = first_device(inputs)
        with tiers.Unfused(kernels, left, graph, device, launches) as run:
            self._call_in_tiles(registers, plan)
            run.kept = planned is None or self._layout(registers, inputs) == planned
        return run.kept

    @cached_property
    def _tiled(self) -> Tiled:
        return self._in_tiles(arranged(self.steps))

    def _in_tiles(self, order: list[tuple[int, ProgramStep]]) -> Tiled:
        return Tiled(order, self._last_uses(order), parts(order, self.outputs))

    def _call_in_tiles(self, registers: Registers, plan: Plan | None = None) -> None:
        """Call the functions as they are, elementwise ones on tiles of their arrays.

        Users' functions are what they have called while a plan was recorded, if there is one.
        """
        self._cut_off(registers)
        # Other threads may give it up at any time.
        if plan is not None and (inlined := plan.unfused) is not None:
            if self._tried(inlined, registers):
                return
            plan.unfused = None
        if self._tiled.steps != self.steps:
            if self._tried(self._tiled, registers):
                return
            self._tiled = self._in_tiles(self.steps)
        self._tiled.run(registers)

    def _tried(self, tiled: Tiled, registers: Registers) -> bool:
        """Run calls in another order; return False, with nothing done, if that cannot be.

        Errors would show the order. Where what a function calls does not run on tiles, the function
        itself does better: NumPy computes into the memory of operands that only it has.
        """
        tried: Registers = [*registers, *[None] * tiled.more]
        errors: list[Any] = []
        try:
            with collecting(heeded(), errors.append):
                done = tiled.run(tried)
        except Exception as error:  # noqa: BLE001  Raised again, in the order of the calls
            errors.append(error)
        if errors or not done:
            return False
        registers[:] = tried[: len(registers)]
        return True

    def _inlined(
        self, recorder: Recorder, inlining: Inlining, registers: Registers
    ) -> Tiled | None:
        """Return the steps with what users' functions have called in their place, if it shows."""
        if recorder.answers or not inlining.steps:
            return None  # Another chunk may go another way.
        if recorder.errors or _warns(recorder, inlining):
            return None  # Errors are of numbers, which are not computed again.
        found = (inlining.steps.get(register, [(register, step)]) for register, step in self.steps)
        order = arranged(list(itertools.chain.from_iterable(found)))
        return replace(self._in_tiles(order), more=inlining.free - len(registers), inlined=True)

    def _refused(self, error: Exception, what: GraphBreak, inputs: tuple[Any, ...],
                 registers: Registers, by_calls: Plan | None = None) -> Direct:  # fmt: skip
        """Return the decision to do without kernels after something has failed.

        Parameters
        ----------
        error
            What was raised.
        what
            What has failed.
        inputs
            Chunks, wherever they are.
        registers
            Of the program.
        by_calls
            What computes on the device all the same.
        """
        if dask.config.get("gpusched.fusion.strict", False):
            raise error
        reason = what(f"{what.name.lower()} failed: {type(error).__name__}: {error}")
        moved = isinstance(registers, Moved)
        if moved or not first_device(inputs).can.host_memory:
            warn_once(reason, "NumPy" if moved and by_calls is None else "CuPy")
        return self._without(reason)

    def _direct(self, found: Direct, registers: Registers, key: Any = None) -> None:
        """Call the functions as they are, and remember and count that."""
        _leave(registers, found)
        self.call(registers)
        self._called(found, key)

    def _without(self, reason: Reason) -> Direct:
        """Return the decision to call the functions as they are."""
        return Direct(name_of(self.steps[-1][1].function), reason)

    def examined(self) -> Examination:
        """Return what is known of the user's functions as they are now, in this process.

        What they read from outside may have changed since the program was made, and may differ
        between processes: plans hold for one state of it.
        """
        if not self._own:
            return NOTHING
        found = self._examination
        if found is None or not found.holds():
            found = Examination.of(self._own)
            with self._lock:
                self._news = decisions.CHANGED if self._plans else self._news
                self._plans.clear()
                self._examination = found
        return found

    def call(self, registers: Registers, reported: bool = False) -> None:
        """Call the functions as they are; those of dask's own where their errors are wanted.

        Parameters
        ----------
        registers
            Of the program.
        reported
            Whether NumPy is to report floating-point errors.
        """
        self._cut_off(registers)
        call_each(self.steps, self.last_uses, registers, reported)

    def _cut_off(self, registers: Registers) -> None:
        """Have dask cut off the pieces among the inputs, where results may be views of them."""
        for register, step in self.given:
            # A piece of a chunk in device memory has been copied to where it is read.
            if type(registers[step.args[0].number]) is np.ndarray:
                registers[register] = step.call(step.function, registers)

    def key(self, inputs: tuple[Any, ...], moves: bool = False) -> Any:
        """Return what a plan depends on, or None if that is not known.

        Parameters
        ----------
        inputs
            Of the segment.
        moves
            Whether their arrays are copied to the device.
        """
        try:
            found = tuple([
                (value.dtype, value.shape, value.strides)
                if type(value) is np.ndarray else describe(value)
                for value in inputs
            ])  # fmt: skip
        except TypeError:
            return None
        return (Moved, found) if moves else found

    def refusal(self, inputs: tuple[Any, ...]) -> Direct | None:
        """Return the decision not to run such inputs as kernels on the device, if there is one."""
        found = self._plans.get(self.key(inputs, moves=True))
        return found if isinstance(found, Direct) else None

    def obstacle(self, inputs: tuple[Any, ...], key: Any) -> Reason | None:
        """Return why a segment is not recorded for such inputs, or None if it may be."""
        return obstacle(inputs, key, self.joins, self.overrides.bounds.elements)

    def _decide(self, inputs: tuple[Any, ...], key: Any) -> Direct | None:
        """Return the decision not to record, if it follows from the inputs."""
        reason = self.obstacle(inputs, key)
        if reason is None:
            return None
        found = Direct(name_of(self.steps[0][1].function), reason)
        if not replaced():
            self._remember(key, found)
        return found

    def _remember(self, key: Any, found: Plan | Ways | Direct | Waiting) -> None:
        """Keep what is to be done with such inputs; a key of None stands for this time only."""
        if key is None:
            return
        room = max(CONSTANTS - held(found), 0)
        with self._lock:
            while sum(map(held, self._plans.values())) > room:
                self._plans.popitem(last=False)
            self._plans[key] = found

    def _replay(self, plan: Plan, inputs: tuple[Any, ...], registers: Registers) -> None:
        take()
        try:
            results, seconds = plan.run(flat(inputs), registers[self.outputs[-1]])
        except ReplayError:
            take()  # Errors of numbers that this chunk has not.
            raise
        self._finish(plan, results, seconds, registers)

    def _report(self, plan: Plan, registers: Registers) -> None:
        """Have NumPy repeat the calls where they have raised errors, so that it reports them.

        What it computes is the result, since values beyond what a dtype can hold may depend on how
        they were computed. What it warns of in any case, it warns of then.
        """
        if take() | plan.errors:
            with updating() as counters:
                counters.repeats += 1
            _leave(registers, self._without(REPORTED))
            return self.call(registers, reported=True)
        for warning in plan.warned:
            warnings.warn(warning, stacklevel=2)
        return None

    def _record(self, inputs: tuple[Any, ...], key: Any, registers: Registers,
                examination: Examination, short: bool = False,
                ways: Ways | None = None) -> None:  # fmt: skip
        recorder = self.recorder(Recorder, first_device(inputs))
        recorder.moved = isinstance(registers, Moved)
        mode = config.word("fusion.compile")
        compiled = short and mode != tiers.OFF
        recorder.patient = compiled or mode == tiers.WAIT or self.overrides.waits
        take()
        found: Direct | Plan | None = None
        planned: Any = None
        failed: Exception | None = None
        unfused = not (recorder.patient or recorder.moved) and recorder.device.can.host_memory
        inlining = Inlining(len(registers)) if unfused else None
        try:
            bound = self._bound(examination, recorder)
            local, arrays = self.trace(recorder, inputs, registers, bound, inlining)
            found = self.too_little(recorder)
            if found is None:
                found = recorder.plan(arrays, self.structures(recorder, local))
                planned = self._planned_layout(found, recorder, inputs, local)
                asked = recorder.patient or recorder.moved or self._is_ready(found)
                if planned is not None and asked:
                    found = self._laid_out(found, planned, inputs, registers, short)
                    planned = None
            if isinstance(found, Plan):
                if recorder.patient:
                    tiers.wait(found.kernels)
                if self._is_ready(found):
                    results, seconds = recorder.run(found, flat(inputs))
                elif inlining is not None:
                    found.unfused = self._inlined(recorder, inlining, registers)
        except (MemoryError, OverrideError, config.ChoiceError, PieceReturnedError):
            # Says nothing about the functions: there may be room the next time, and NumPy's own
            # run is not what the user's version of a kernel does, nor what was configured.
            raise
        except UnrecordableError as reason:
            found = self._without(reason.reason)
        except Exception as error:  # noqa: BLE001  _call_after decides
            failed = error
            if isinstance(error, OSError):
                key = None  # There may be files or a disk the next time.
        if _warns(recorder, inlining):
            self._tiled = self._in_tiles(self.steps)  # Another order may be tried in vain.
        # Not while an error is handled, which would be shown beside what the functions raise.
        if failed is not None:
            self._called(self._call_after(failed, inputs, registers), key)
        elif recorder.missing:
            self._remember(key, Waiting(recorder.missing))
            recorder.discard()
            self._unfused(recorder.missing, key, inputs, registers)
        elif isinstance(found, Direct):
            recorder.discard()
            self._direct(found, registers, key)
        elif isinstance(found, Plan):
            self._count(recorder, key)
            lasts = recorder.escape is None and self.replayed and self.errors == error_state()
            kept = lasts and examination.holds()
            if not kept:
                self._news = decisions.NOT_KEPT
            elif found.ready or planned is None:
                self._remember(key, found if ways is None else ways.first(found))
            else:
                self._remember(key, Waiting(found.kernels))
            if found.ready:
                return self._finish(found, results, seconds, registers)
            recorder.discard()
            if not self._unfused(found.kernels, key, inputs, registers, found, planned):
                self._called(self._without(OTHER_LAYOUT), key)
            elif kept and planned is not None:
                self._remember(key, found if ways is None else ways.first(found))

    def _finish(self, plan: Plan, results: Any, seconds: float, registers: Registers) -> None:
        """Keep and count the results of a plan whose kernels have run."""
        with updating() as counters:
            counters.tasks += 1
            if plan.names:
                counters.fused_tasks += 1
                plan.count(counters, seconds)
        self._keep(plan, results, registers)

    def _keep(self, plan: Plan, results: Any, registers: Registers) -> None:
        """Keep the results of a plan, and report the errors that it has raised."""
        if isinstance(registers, Moved):
            results = registers.copies.settled(results, plan.result)
        for register, result in zip(self.outputs, results, strict=True):
            registers[register] = result
        self._report(plan, registers)

    def _called(self, direct: Direct, key: Any) -> None:
        """Remember and count that the functions have been called as they are."""
        self._remember(key, direct)
        with updating() as counters:
            counters.tasks += 1
            counters.breaks[direct.operation, direct.reason] += 1

    def _count(self, recorder: Recorder, key: Any) -> None:
        found = name_of(self.steps[-1][1].function), self._newness(key)
        with updating() as counters:
            counters.recorded[found] += 1
            counters.breaks.update(recorder.breaks)
            counters.apart.update(recorder.apart)
            if recorder.escape is not None:
                counters.breaks["plan", recorder.escape] += 1

    def _newness(self, key: Any) -> str:
        """Return what is new about inputs that are being recorded."""
        with self._lock:
            known, news, self._news = list(self._plans), self._news, ""
        if key is None:
            return decisions.UNCOMPARABLE
        if news or key in known:
            return news or decisions.COMPILED
        alike = [each for each in known if (each[0] is Moved) == (key[0] is Moved)]
        pairs = [each[1] if each[0] is Moved else each for each in (key, *alike)]
        return decisions.newness(pairs[0], pairs[1:])

    def _call_after(self, error: Exception, inputs: tuple[Any, ...],
                    registers: Registers) -> Direct:  # fmt: skip
        """Call the functions as they are after a recording has failed.

        Nothing has been changed by then. Either they raise what the user's program raises, or the
        recorder has a bug, which is counted.
        """
        _leave(registers, self._without(GraphBreak.RECORDING(f"recording failed: {error!r}")))
        self.call(registers)
        return self._refused(error, GraphBreak.RECORDING, inputs, registers)

    def recorder(self, kind: type[_Recorder], device: Device) -> _Recorder:
        """Return a recorder of these calls, whose plan is to hold for the answers they are given.

        Calls that are recorded for each chunk get values instead.

        Parameters
        ----------
        kind
            Its type.
        device
            Where the chunks are.
        """
        found = kind(self.overrides.on(device), self.overrides.bounds.most)
        found.answers = {} if self.replayed else None
        found.exact = self.overrides.mathematics == EXACT
        return found

    def _bound(self, examination: Examination, recorder: Recorder) -> list[Call]:
        """Return the calls, of the user's functions those that read what was examined."""
        if examination.refused:
            return self.calls
        outsides = dict(zip(map(id, self._own), examination.outsides, strict=True))
        found = list(self.calls)
        for k, (register, function, step) in enumerate(found):
            if id(step) in outsides:
                bound = outsides[id(step)].bound(recorder)
                given = replace(step, args=bound.value(step.args), kwargs=bound.values(step.kwargs))
                found[k] = register, bound.value(function), given
        return found

    def trace(self, recorder: Recorder, inputs: tuple[Any, ...], registers: Registers,
              calls: Sequence[Call] | None = None, inlining: Inlining | None = None
              ) -> tuple[Registers, tuple[tuple[int, int], ...]]:  # fmt: skip
        """Call the functions with lazy chunks; return the registers and the arrays' places.

        A place is a number among the inputs made `flat`, and a register of the recorder.

        Nothing is left in `registers`: `finish` does that, and `run_whole` is both.
        """
        local: Registers = list(registers)
        arrays: list[tuple[int, int]] = []
        numbers = itertools.count()
        for register, value in zip(self.inputs, inputs, strict=True):
            local[register] = _lazy(value, recorder, numbers, arrays)
        for register, _ in self.given:
            if isinstance(piece := local[register], LazyChunk):
                recorder.wants_own(node_of(piece))
        with recorder.own_numbers():
            each_call = self._bound(self.examined(), recorder) if calls is None else calls
            for (register, function, step), gone in zip(each_call, self.last_uses, strict=True):
                recorder.step = register
                if inlining is not None and register in self._users:
                    given = {k: local[k] for k in step.registers}
                    call = partial(step.call, function, local)
                    local[register] = inlining.follow(recorder, register, given, call)
                else:
                    local[register] = step.call(function, local)
                recorder.gone.update([id(local[k]) for k in gone])
        if recorder.stopped is not None:
            raise recorder.stopped  # whoever has caught it
        return local, tuple(arrays)

    def _planned_layout(self, plan: Plan, recorder: Recorder, inputs: tuple[Any, ...],
                        local: Registers) -> Any:  # fmt: skip
        """Return how a plan lays its results out, if it matters and NumPy may do it otherwise."""
        if not self.shown:
            return None
        given, planned = flat(inputs), flat(recorder.stand_ins(plan.result))
        arrays = list(filter(is_array, planned))
        results = chunks_in([local[k] for k in self.outputs])
        own = all(was_own(chunk) or not chunk.shape for chunk in results)
        ordered = own and recorder.keeps_c_order() and all(map(in_c_order, given))
        if not arrays or (ordered and all(map(is_plain, arrays))):
            return None
        return strides(planned) if recorder.moved else layouts(planned, given)

    def _layout(self, registers: Registers, inputs: tuple[Any, ...], moved: bool = False) -> Any:
        """Return how the results among the registers are laid out.

        On the host, for those that a GPU computes: each function gets a copy of its own of these.
        """
        found = flat(tuple([registers[k] for k in self.outputs]))
        return strides(found) if moved else layouts(found, flat(inputs))

    def _laid_out(self, plan: Plan, planned: Any, inputs: tuple[Any, ...],
                  registers: Registers, short: bool) -> Plan | Direct:  # fmt: skip
        """Return the plan, or the decision to do without if NumPy lays the results out otherwise.

        NumPy itself is asked, once for each kind of chunks; before kernels are compiled, the first
        run does.
        """
        moved = isinstance(registers, Moved)
        tried: Registers = list(map(hosted, registers)) if moved else list(registers)
        with np.errstate(all="ignore"):
            self._call_in_tiles(tried) if short else self.call(tried)
        same = self._layout(tried, inputs, moved) == planned
        return plan if same else self._without(OTHER_LAYOUT)

    def too_little(self, recorder: Recorder) -> Direct | None:
        """Return the decision that there is nothing to gain, before anything has been compiled."""
        bounds = self.overrides.bounds
        if recorder.moved or recorder.launched or recorder.operations >= bounds.operations:
            return None
        if gains_alone(recorder, bounds.single):
            return None
        return self._without(GraphBreak.ALONE("nothing to fuse it with"))

    def finish(self, recorder: Recorder, local: Registers, registers: Registers) -> tuple[Any, ...]:
        """Compute the outputs into `registers`, and return them as structures of registers."""
        structures = self.structures(recorder, local)
        for k, structure in zip(self.outputs, structures, strict=True):
            registers[k] = recorder.fetch(structure)
        return structures

    def structures(self, recorder: Recorder, local: Registers) -> tuple[Any, ...]:
        """Return the outputs as structures of registers, which nothing has been written to yet."""
        wanted = lazies([local[k] for k in self.outputs])
        if self._users and recorder.device.can.errors:
            wanted += recorder.unused(wanted, self._users)
        recorder.flush(wanted)
        if self.given and any(recorder.is_piece(recorder.register(node)) for node in wanted):
            raise PieceReturnedError
        made = ResultRegisters(recorder)
        return tuple([made.reference(local[k]) for k in self.outputs])


def _warns(recorder: Recorder, inlining: Inlining | None) -> bool:
    """Return whether calls that are made twice may warn twice: not only if errors are heeded."""
    return bool(recorder.warned) or not (inlining is None or inlining.is_quiet)


def _leave(registers: Registers, found: Direct) -> None:
    """Have functions called on NumPy's arrays, if those of the task could be moved."""
    if isinstance(registers, Moved):
        registers.leave(found.operation, found.reason)


def _by_calls(plan: Plan, registers: Registers) -> Plan | None:
    """Return a plan by CuPy's calls for arrays that are moved, if the device is done sooner so."""
    if not isinstance(registers, Moved) or plan.by_calls is None:
        return None
    return plan.by_calls if registers.pays(plan.by_calls.passes) else None


def held(found: Plan | Ways | Direct | Waiting) -> int:
    """Return the bytes of the arrays that plans hold."""
    plans = found.plans if isinstance(found, Ways) else (found,)
    arrays = (a for plan in plans if isinstance(plan, Plan) for _, a in plan.constants)
    return sum(int(array.nbytes) for array in arrays)


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
