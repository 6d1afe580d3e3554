"""Calls inside a chunk task that run together: recorded once, then repeated from a plan."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import dask
import numpy as np
from dask.array.chunk import getitem

from gpusched.backends.devices import Device
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.floatingpoint import INVALID, QUOTIENT, enforced, error_state, heeded, take
from gpusched.emit.kernel import EXACT
from gpusched.emit.operations import replaced
from gpusched.graph.functions.known import is_elementwise_call, known, substitute_for
from gpusched.graph.functions.partials import bare, has_name, name_of
from gpusched.graph.running import decisions, layouts
from gpusched.graph.running.calling import Calling
from gpusched.graph.running.cutfirst import RETURNED, CutFirst, leading_cuts
from gpusched.graph.running.decisions import (
    AWAITED,
    Direct,
    Plans,
    Remaining,
    Waiting,
    warn_once,
)
from gpusched.graph.running.division import Steps
from gpusched.graph.running.inputs import (
    NESTED,
    ONCE,
    describe,
    first_device,
    flat,
    most_elements,
    obscurity,
    obstacle,
)
from gpusched.graph.running.moved import Moved, leave
from gpusched.graph.running.recording import Recording
from gpusched.graph.running.remembered import Remembered
from gpusched.graph.safety.examination import NOTHING, Examination, is_own, reasons
from gpusched.plan import shortage, tiers
from gpusched.plan.grids import is_join
from gpusched.plan.overrides import NONE
from gpusched.plan.plan import OtherKindError, Plan, Registers, ReplayError, changed
from gpusched.record.catalogue import has
from gpusched.record.record import Recorder
from gpusched.record.steps import ProgramStep
from gpusched.store.handles import Handle
from gpusched.store.statistics import updating

WAYS = 8
"""Plans for chunks of one kind by which functions go different ways. Each that does not hold may
have run in vain, and some functions go another way for each chunk."""
OTHER_KINDS = 3
"""Plans by which calls give results of different kinds, such as other lengths. Where none of them
holds, what is before the call and after it have plans of their own from then on, and the call is
made once for each chunk: sums of half of 80 MB, chosen by a mask, take 91 ms of processor time so,
and 188 where each chunk runs by a plan in vain."""

UNUSED = 16
"""How many more plans are made than used again before those of small chunks wait until inputs of
their kind come again, which is rare for lengths that a mask decides. What follows a mask took plain
dask's processor time 1.5 times for chunks of 10K elements, 1.8 of 50K and 200K, with a plan for
each length."""
NEW_KIND = GraphBreak.SMALL_CHUNKS("small chunks, each of another kind: recorded if it comes again")

NOT_COMPILED = GraphBreak.NOT_COMPILED("its kernels are not compiled yet")
"""Why a task whose arrays could be moved to the device runs on the host."""
REPORTED = GraphBreak.NEEDS_HOST("NumPy reports the floating-point errors of its own numbers")
"""Why one is repeated there."""

LISTS = GraphBreak.OWN_CHANGES("may change what a list holds that it is given instead of a chunk")
_STRUCTURES = {dict, *NESTED}
OTHER_WAYS = GraphBreak.OWN_DECIDES(f"its functions go more than {WAYS} ways, as chunks decide")

_Recorder = TypeVar("_Recorder", bound=Recorder)


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
    given
        The steps by which dask cuts pieces among its inputs off, and copies the small ones: here
        they are views of the chunks.

    Notes
    -----
    Thread-safe: plans are immutable, and a plan recorded twice at once is as good as one.
    """

    def __init__(self, steps: Steps, inputs: tuple[int, ...], outputs: tuple[int, ...],
                 recorded: bool, dying: tuple[int, ...] = (), given: Steps | None = None
                 ) -> None:  # fmt: skip
        self.inputs = inputs
        self.outputs = outputs
        self.recorded = recorded
        self.dying = dying
        self.given = given or []
        self.overrides = NONE
        """Users' versions of kernels, before the first run."""
        self.replayed = all(step.replayed for _, step in steps)
        self.joins = any(is_join(step.function) for _, step in steps)
        """Whether small inputs may become a large one."""
        self.realigns = any(_realigns(step) for _, step in steps)
        """Whether the product of two small ones may."""
        self.errors = error_state()
        """What `numpy.errstate` says where the program is made, which is part of its identity."""
        self.remaining = Remaining()
        """Of the program."""
        self.shown = False
        """Whether functions that are not recorded may see the memory layout of the results."""
        self.lent = False
        """Whether several tasks have the functions, of which each has its own in plain dask."""
        self.content: Any = None
        """Equal for segments that do the same if functions of the user's with the same code read
        the same; None if that is not known."""
        self.returns = False
        """Whether a later segment of the program needs the results in host memory."""
        self.users = {r for r, step in steps if recorded and not known(step.function)}
        """Results of functions of the user's, which may compute what they only want checked."""
        self.guards = tuple({step.taken.register for _, step in steps if step.taken is not None})
        """Inputs that notice changes of the partial applications that were taken apart here. They
        are asked before it runs, where anything may have changed these since they were asked."""
        self.unsafe = [] if recorded else reasons(step for _, step in steps)
        self._begin(steps)

    def _begin(self, steps: Steps) -> None:
        """Take the functions, of whose runs nothing is known yet."""
        self.steps = steps
        kept = set(self.inputs).difference(self.dying) | set(self.outputs)
        self.calling = Calling(steps, self.given, kept, self.outputs)
        """What calls the functions as they are."""
        self.calls = [(r, substitute_for(s.function), s) for r, s in steps]
        """What is called with lazy chunks."""
        self.named = [(r, s) for r, s in steps if has_name(s.function)]
        """The calls that are reported: of all but what only hands results on."""
        self.own = [step for _, step in steps if self.recorded and is_own(step)]
        """Calls of the user's functions."""
        self._state = NOTHING, Remembered()
        """What is known of the user's functions, and what is remembered for these: both at once,
        as threads may find that another one reads something else."""
        self.cut: CutFirst | None = None
        """How to run with pieces of its inputs, where nothing else is taken of some."""
        self.apart: list[Segment] = []
        """What runs instead: one function of the user's stops when it is recorded."""
        self.varies = False
        """Whether values of chunks decide of what kind its results are: plans hold for one, and
        what is recorded of small ones takes longer than it saves."""
        self.spent: Reason | None = None
        """Why the user's function is not recorded again, as that takes too long."""

    @property
    def remembered(self) -> Remembered:
        """What is done with inputs of each kind."""
        return self._state[1]

    def as_it_is(self, inputs: Sequence[Any]) -> Segment:
        """Return calls of partial applications that were changed since; or the segment itself."""
        steps = [(register, step.as_it_is(inputs)) for register, step in self.steps]
        if all([new is old for (_, new), (_, old) in zip(steps, self.steps, strict=True)]):
            return self
        return Segment(steps, self.inputs, self.outputs, False, self.dying)

    def of_task(self, steps: Mapping[int, ProgramStep]) -> Segment:
        """Return it with copies of its functions that one task has for itself.

        Parameters
        ----------
        steps
            The calls, by the registers of their results.
        """
        made = copy.copy(self)
        made.lent = False
        made._begin([(r, replace(steps[r], recorded=step.recorded)) for r, step in self.steps])
        made.cut_first()
        return made

    def shows(self, registers: Registers) -> bool:
        """Return whether a result may share memory with an array that is read from outside."""
        arrays = self.examined().arrays
        results = flat(self.results(registers)) if arrays else ()
        found = [each for each in results if isinstance(each, np.ndarray)]
        return any(np.may_share_memory(each, array) for each in found for array in arrays)

    def cut_first(self) -> None:
        """Have pieces of NumPy's arrays cut before the rest is recorded, where that can be done."""
        leading = leading_cuts(self.steps, self.inputs, self.outputs) if self.recorded else []
        if not leading or len(leading) == len(self.steps):
            return
        cuts = {register for register, _ in leading}
        rest = [(r, step) for r, step in self.steps if r not in cuts]
        given = [(r, step) for r, step in leading if step.function is getitem]
        self.cut = CutFirst(tuple(leading), self._part(rest, given))

    def identify(self, content: Any) -> None:
        """Have plans found by what equal segments have in common, see `content`."""
        self.content = content
        if self.cut is not None:
            self.cut.rest.identify(self._content_of(self.cut.rest.steps))

    def _content_of(self, steps: Steps) -> Any:
        """Return the content of a part that has these steps."""
        known = self.content is not None
        return (self.content, tuple([register for register, _ in steps])) if known else None

    def divided(self, step: int, spent: Reason | None = None, varies: bool = False
                ) -> list[Segment]:  # fmt: skip
        """Return what runs before a call, the call, and what runs after it, each by itself.

        Parameters
        ----------
        step
            The register of the call's result.
        spent
            Why the call is not recorded again, for any inputs, if so.
        varies
            Whether values decide of what kind its results are.

        Returns
        -------
        list of Segment
            Empty if there is nothing else, or the call is one of dask's that cut pieces off.
        """
        results = [result for result, _ in self.steps]
        if step not in results:
            return []
        place = results.index(step)
        others = self.steps[:place], self.steps[place + 1 :]
        alone = self._part(self.steps[place : place + 1]) if any(others) else self
        alone.spent, alone.varies = spent, varies
        before, after = ([self._part(steps)] if steps else [] for steps in others)
        return [] if alone is self else [*before, alone, *after]

    def _part(self, steps: Steps, given: Steps | None = None) -> Segment:
        """Return the segment of some of the calls, whose own steps of dask's may be given."""
        made = {register for register, _ in steps}
        read = {r for register, step in self.steps if register not in made for r in step.registers}
        needed = set().union(*(step.registers for _, step in steps)) - made
        outputs = tuple(sorted(made & (read | set(self.outputs))))
        if given is None:
            given = [each for each in self.given if each[0] in needed]
        part = Segment(steps, tuple(sorted(needed)), outputs, True, given=given)
        part.overrides, part.remaining, part.errors = self.overrides, self.remaining, self.errors
        part.shown, part.returns = self.shown, self.returns
        part.content = self._content_of(steps)
        return part

    def run_apart(self, parts: list[Segment], registers: Registers) -> None:
        """Run parts of the segment instead of it, from now on."""
        self.apart = parts
        for part in parts:
            part.run_whole(registers)
        for register in {r for part in parts for r in part.outputs}.difference(self.outputs):
            registers[register] = None

    # Running ----------------------------------------------------------------------------

    def run(self, registers: Registers) -> None:
        """Read the inputs from `registers` and write the outputs there."""
        count = shortage.wanted() if self.recorded else 1
        if not (count > 1 and self._run_in_pieces(registers, count)):
            self.run_whole(registers, short=count > 1)
        for register in self.dying:
            registers[register] = None

    def _run_in_pieces(self, registers: Registers, count: int) -> bool:
        from gpusched.graph.running import pieces  # Few processes are ever short of memory.

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
            return self._run_unsafe(registers)
        if self.cut is not None and self._run_cut(self.cut, registers, short):
            return None
        state = examination, remembered = self._now()
        inputs = (*[registers[k] for k in self.inputs], *examination.arrays)
        if examination.refused:
            return self.direct(Direct(*examination.refused), registers)
        if examination.chunks and not _STRUCTURES.isdisjoint(map(type, inputs)):
            for k in self.inputs:
                if type(registers[k]) in _STRUCTURES:
                    registers[k] = changed(registers[k], _copied)
            return self.direct(self.without(LISTS), registers)
        moved = registers if isinstance(registers, Moved) else None
        if self.apart and moved is None:
            return self.run_apart(self.apart, registers)
        key = self.key(inputs, moved is not None)
        found = remembered.known(key)
        others: Plans | None = None
        if type(found) is Plans:
            if self._replayed(found, key, inputs, registers):
                if remembered.unused > 0:
                    remembered.unused -= 1
                return None
            if self.apart:
                return self.run_apart(self.apart, registers)
            if len(found.plans) == WAYS:
                return self.direct(self.without(OTHER_WAYS), registers, key)
            remembered.news = decisions.OTHER_RESULT
            if moved is None or found.plans[0].branches:
                others = found
            else:
                remembered.forget(key)
        elif isinstance(found, Waiting):
            if tiers.missing(found.kernels):
                self.unfused(found.kernels, key, inputs, registers)
                return None
        elif found is None and moved is None:
            found = self._decided(inputs, key)
        if isinstance(found, Direct):
            return self.direct(found, registers)
        if moved is not None:
            inputs = moved.copies.on_device(inputs)
        return Recording(self, inputs, registers, key, state, short, others).run()

    def _run_unsafe(self, registers: Registers) -> None:
        """Call functions that are not recorded, and count those that are not shown to be safe."""
        if self.unsafe:
            with updating() as counters:
                counters.breaks.update(self.unsafe)
        self.calling.one_by_one(registers)

    def _run_cut(self, cut: CutFirst, registers: Registers, short: bool) -> bool:
        """Run with pieces of the inputs; return False, with nothing done, if that cannot be."""
        if isinstance(registers, Moved):
            # `gpusched.graph.placement.devicechoice.cut` has said that chunks move whole.
            return False
        reason = cut.run(registers, lambda rest: rest.run_whole(registers, short))
        if reason is None:
            return True
        if reason is RETURNED:
            self.cut = None
        with updating() as counters:
            counters.apart["slice", reason] += 1
        return False

    def _replayed(self, found: Plans, key: Any, inputs: tuple[Any, ...],
                  registers: Registers) -> bool:  # fmt: skip
        """Run the plan that holds for some inputs; return False if none does.

        While kernels of one are missing, that one may hold: the functions are called as they are.
        """
        missing: tuple[Plan, ...] = ()
        for plan in found.plans:
            if not (plan.ready or tiers.is_ready(plan)):
                missing += (plan,)
                continue
            given = registers.copies.on_device(inputs) if type(registers) is Moved else inputs
            take()
            failed: Exception | None = None
            try:
                results, seconds = plan.run(flat(given), registers[self.outputs[-1]])
            except ReplayError as error:
                take()  # Errors of numbers that this chunk has not.
                last = plan is found.plans[-1] and type(registers) is not Moved
                if isinstance(error, OtherKindError) and last and self._varies(found):
                    self.apart = self.divided(error.step, varies=True)
                continue
            except Exception as error:
                # NumPy reports what it finds before a function raises, and first.
                repeats = bool(take() or self.own) and not isinstance(registers, Moved)
                memory = isinstance(error, MemoryError) and not self.examined().handles
                if not repeats or memory:
                    raise
                failed = error
            if failed is not None:
                self.call_after(failed, key, inputs, registers)
                return True
            self.finish(plan, results, seconds, registers)
            if plan is not found.plans[0]:
                self.remembered.held_last(key, found, plan)
            return True
        if missing:
            kernels = tuple([kernel for plan in missing for kernel in plan.kernels])
            only = missing[0] if len(found.plans) == 1 else None
            self.unfused(kernels, key, inputs, registers, only)
        return bool(missing)

    def _varies(self, found: Plans) -> bool:
        """Return whether no more plans are to be tried: what takes any time runs in vain once."""
        return len(found.plans) >= (1 if self.examined().between else OTHER_KINDS)

    def finish(self, plan: Plan, results: Any, seconds: float, registers: Registers) -> None:
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

    def _report(self, plan: Plan, registers: Registers) -> None:
        """Have NumPy repeat the calls where they have raised errors, so that it reports them.

        What it computes is the result, since values beyond what a dtype can hold may depend on how
        they were computed. What it warns of in any case, it warns of then.
        """
        errors = take() | plan.errors
        if errors == QUOTIENT and not enforced() & INVALID:
            errors = 0
            if heeded() & INVALID:
                warnings.warn("invalid value encountered in divide", RuntimeWarning, stacklevel=2)
        if errors:
            with updating() as counters:
                counters.repeats += 1
            leave(registers, self.without(REPORTED))
            return self.calling.one_by_one(registers, reported=True)
        for warning in plan.warned:
            warnings.warn(warning, stacklevel=2)
        return None

    # Without kernels --------------------------------------------------------------------

    def unfused(self, kernels: tuple[Handle, ...], key: Any, inputs: tuple[Any, ...],
                registers: Registers, plan: Plan | None = None,
                layout: Any = None) -> bool:  # fmt: skip
        """Call the functions as they are, or CuPy's as a plan says, as kernels are missing.

        Returns
        -------
        bool
            Whether the results have that `layout`, if one is given.
        """
        by_calls = _by_calls(plan, registers) if plan is not None else None
        launches = plan.names if plan is not None else ()
        error = tiers.failure(kernels)
        if error is not None:
            direct = self.refused(error, GraphBreak.COMPILATION, inputs, registers, by_calls)
            if by_calls is None:
                self.direct(direct, registers, key)
                return True
            with updating() as counters:
                counters.breaks[direct.operation, direct.reason] += 1
        self.remaining.tasks -= 1
        left, graph = self.remaining.tasks, self.remaining.graph
        if isinstance(registers, Moved):
            if by_calls is not None:
                given = flat(registers.copies.on_device(inputs))
                take()
                with tiers.Unfused(kernels, left, graph, first_device(given), launches):
                    results, _ = by_calls.run(given)
                self._keep(by_calls, results, registers)
                return True
            registers.leave(kernels[0].name, NOT_COMPILED)
        with tiers.Unfused(kernels, left, graph, first_device(inputs), launches) as run:
            self.calling.on_blocks(registers, plan)
            found = None if layout is None else layouts.seen(self.results(registers), inputs)
            run.kept = found == layout
        return run.kept

    def refused(self, error: Exception, what: GraphBreak, inputs: tuple[Any, ...],
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
        reason = what(f"{what.name.lower()} failed", f"{type(error).__name__}: {error}")
        moved = isinstance(registers, Moved)
        if moved or not first_device(inputs).can.host_memory:
            warn_once(reason, "NumPy" if moved and by_calls is None else "CuPy")
        return self.without(reason)

    def call_after(self, error: Exception, key: Any, inputs: tuple[Any, ...],
                   registers: Registers) -> None:  # fmt: skip
        """Call the functions as they are after a recording or a plan has failed.

        Nothing has been changed by then. Either they raise what the user's program raises, or they
        handle it, or gpusched has a bug, which is counted.
        """
        leave(registers, self.without(GraphBreak.RECORDING("recording failed", repr(error))))
        self.calling.one_by_one(registers, reported=True)
        if self.examined().handles:
            told = f"your function may handle a {type(error).__name__}"
            short = isinstance(error, MemoryError)  # There may be room the next time.
            self.called(self.without(GraphBreak.OWN_HANDLES(told)), None if short else key)
        else:
            self.called(self.refused(error, GraphBreak.RECORDING, inputs, registers), key)

    def direct(self, found: Direct, registers: Registers, key: Any = None) -> None:
        """Call the functions as they are, and remember and count that."""
        leave(registers, found)
        self.calling.one_by_one(registers)
        self.called(found, key)

    def called(self, direct: Direct, key: Any) -> None:
        """Remember and count that the functions have been called as they are."""
        self.remembered.add(key, direct)
        with updating() as counters:
            counters.tasks += 1
            if self.named:
                counters.breaks[direct.operation, direct.reason] += 1

    def operation(self, k: int) -> str:
        """Return the name of one of its calls, for people."""
        return name_of((self.named or self.steps)[k][1].function)

    def without(self, reason: Reason) -> Direct:
        """Return the decision to call the functions as they are."""
        return Direct(self.operation(-1), reason)

    # What it depends on -----------------------------------------------------------------

    def values(self, registers: Registers) -> tuple[Any, ...]:
        """Return the inputs, and the arrays that functions of the user's read from outside."""
        return (*[registers[k] for k in self.inputs], *self.examined().arrays)

    def results(self, registers: Registers) -> tuple[Any, ...]:
        """Return the outputs among the registers of the program."""
        return tuple([registers[k] for k in self.outputs])

    def examined(self) -> Examination:
        """Return what is known of the user's functions as they are now, in this process.

        What they read from outside may have changed since the program was made, and may differ
        between processes: plans hold for one state of it.
        """
        return self._now()[0]

    def _now(self) -> tuple[Examination, Remembered]:
        """Return what is known of the user's functions now, and what is remembered for these."""
        state = self._state
        if not self.own or (state[0] is not NOTHING and state[0].holds()):
            return state
        if state[0] is not NOTHING:
            self.spent, self.varies = None, False
        found = Examination.of(self.own)
        alike = None if self.content is None else found.identity
        key = None if alike is None else (self.content, alike)
        self._state = state = found, state[1].instead(key)
        self.apart = []
        return state

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
        found = self.remembered.get(self.key(inputs, moves=True))
        return found if isinstance(found, Direct) else None

    def obstacle(self, inputs: tuple[Any, ...], key: Any, once: bool = False) -> Reason | None:
        """Return why a segment is not recorded for such inputs, or None if it may be.

        Parameters
        ----------
        inputs, key
            Of the segment, and their kind.
        once
            Whether inputs of this kind may not come again.
        """
        refused = self.examined().refused
        own = refused[1] if refused else self.spent
        obscure = self._obscure(inputs) if key is None else None
        most = partial(most_elements, joins=self.joins, realigns=self.realigns)
        least = self.overrides.bounds.elements
        return own or obstacle(inputs, obscure, most, least, once or self.varies)

    def _obscure(self, inputs: tuple[Any, ...]) -> Reason | None:
        """Return the reason for inputs on which no plan can depend, the user's own first."""
        undescribed = {k: found for k, value in enumerate(inputs) if (found := obscurity(value))}
        read = set().union(*(step.registers for step in self.own))
        for k, found in undescribed.items():
            # What follows the registers is what functions of the user's read from outside.
            if k >= len(self.inputs) or self.inputs[k] in read:
                return GraphBreak.UNCOMPARABLE(f"{found} among the arguments")
        return next((GraphBreak.FORM(f"a result of dask's own that is {found}")
                     for found in undescribed.values()), None)  # fmt: skip

    def _decided(self, inputs: tuple[Any, ...], key: Any) -> Direct | None:
        """Return the decision not to record, if it follows from the inputs, and from those before.

        Where kinds of inputs have not come again, as lengths that values decide may not, calls on
        small chunks of another kind are recorded when it does.
        """
        reason = self.obstacle(inputs, key, once=self.remembered.unused >= UNUSED)
        if reason is None:
            return None
        if reason is ONCE and not self.varies:
            self.remembered.add(key, AWAITED)
            return Direct(self.operation(0), NEW_KIND)
        found = Direct(self.operation(0), reason)
        if not replaced():
            self.remembered.add(key, found)
        return found

    def recorder(self, kind: Callable[[Device, int], _Recorder], device: Device) -> _Recorder:
        """Return a recorder of these calls, whose plan is to hold for the answers they are given.

        Calls that are recorded for each chunk get values instead.

        Parameters
        ----------
        kind
            What makes it: its type, for instance.
        device
            Where the chunks are.
        """
        found = kind(self.overrides.on(device), self.overrides.bounds.most)
        found.answers = {} if self.replayed else None
        found.exact = self.overrides.mathematics == EXACT
        return found


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _realigns(step: ProgramStep) -> bool:
    """Return whether a call may put axes where others have none: most but few kinds of calls do."""
    function = bare(step.function)
    if has(function, "picks"):
        index = step.args[1] if len(step.args) > 1 else None
        return any(each is None for each in (index if type(index) is tuple else (index,)))
    reduces = "keepdims" in step.kwargs
    return (
        not reduces and not is_join(function) and not is_elementwise_call(function, len(step.args))
    )


def _by_calls(plan: Plan, registers: Registers) -> Plan | None:
    """Return a plan by CuPy's calls for arrays that are moved, if the device is done sooner so."""
    if not isinstance(registers, Moved) or plan.by_calls is None:
        return None
    return plan.by_calls if registers.pays(plan.by_calls.passes) else None
