"""A segment is recorded for inputs that it has no plan for, and runs with what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched import config
from gpusched.breaks import GraphBreak
from gpusched.emit.floatingpoint import error_state, take
from gpusched.graph.running import decisions, layouts
from gpusched.graph.running.cutfirst import PieceReturnedError
from gpusched.graph.running.decisions import Direct, Plans, Waiting
from gpusched.graph.running.inlined import Inlining
from gpusched.graph.running.inputs import first_device, flat
from gpusched.graph.running.moved import Moved
from gpusched.graph.running.traced import StoppedError, Trace
from gpusched.placed import hosted
from gpusched.plan import tiers
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.overrides import OverrideError
from gpusched.plan.plan import Plan, Registers
from gpusched.record.record import Recorder
from gpusched.store.statistics import updating

if TYPE_CHECKING:
    from gpusched.graph.running.remembered import Remembered
    from gpusched.graph.running.segment import Segment
    from gpusched.graph.safety.examination import Examination

OTHER_LAYOUT = GraphBreak.LAYOUT("its result would have another layout in memory than NumPy's")

_RAISED = (OverrideError, config.ChoiceError, PieceReturnedError)
"""What says nothing about the functions: NumPy's own run is not what the user's version of a kernel
does, nor what was configured."""


class Recording:
    """One recording of a segment.

    Parameters
    ----------
    segment
        What is recorded.
    inputs, registers
        Of the segment, on the device if they are moved there, and of the program.
    key
        The kind of the inputs.
    state
        What is known of the user's functions, and what is remembered for these.
    short
        Whether memory is short.
    others
        Plans for inputs of this kind, which do not hold for these; None if there are none.
    """

    def __init__(self, segment: Segment, inputs: tuple[Any, ...], registers: Registers, key: Any,
                 state: tuple[Examination, Remembered], short: bool,
                 others: Plans | None) -> None:  # fmt: skip
        self._segment, self._inputs, self._registers = segment, inputs, registers
        self._key, self._others = key, others
        self._examination, self._remembered = state
        mode = config.word("fusion.compile")
        compiled = short and mode != tiers.OFF
        self._recorder = recorder = segment.recorder(Recorder, first_device(inputs))
        recorder.moved = isinstance(registers, Moved)
        recorder.patient = compiled or mode == tiers.WAIT or segment.overrides.waits
        unfused = not (recorder.patient or recorder.moved) and recorder.device.can.host_memory
        self._inlining = Inlining(len(registers)) if unfused else None
        self._layout: Any = None
        """How the plan lays results out, while it is not known whether NumPy does so."""
        self._divided: list[Segment] = []
        """The segment's parts, if a function of the user's has stopped."""
        self._plans: Plans | None = None
        """The plan, and those for other inputs of the kind; None if it is not kept."""
        self._is_ready = False
        """Whether the plan can run at once, and nothing of it has run."""
        self._results: tuple[Any, float] | None = None
        """What the plan has computed, and the seconds that it took, once it has run."""

    def run(self) -> None:
        """Record, compute the segment's outputs into the registers, and remember how."""
        segment, recorder = self._segment, self._recorder
        take()
        with self._remembered.recording(self._key):
            found = self._found(self._planned)
            if isinstance(found, Plan) and not recorder.missing:
                self._count()
                self._remember(found)
        if isinstance(found, Plan) and self._is_ready:
            # Other threads wait for the plan, and not for what it computes of this chunk.
            found = self._found(partial(self._computed, found))
        if self._warns():
            segment.calling.keep_order()
        # Not while an error is handled, which would be shown beside what the functions raise.
        if isinstance(found, Exception):
            segment.call_after(found, self._key, self._inputs, self._registers)
        elif recorder.missing:
            self._remembered.add(self._key, Waiting(recorder.missing))
            recorder.postponed.discard()
            segment.unfused(recorder.missing, self._key, self._inputs, self._registers)
        elif self._divided and not recorder.moved:
            recorder.postponed.discard()
            segment.run_apart(self._divided, self._registers)
        elif isinstance(found, Direct):
            recorder.postponed.discard()
            segment.direct(found, self._registers, self._key)
        else:
            self._run_planned(found)

    def _found(self, made: Callable[[], Plan | Direct]) -> Plan | Direct | Exception:
        """Return the plan, the decision to do without one, or what was raised."""
        try:
            return made()
        except MemoryError as error:
            # There may be room the next time.
            if not self._examination.handles:
                raise
            return error
        except _RAISED:
            raise
        except StoppedError as stopped:
            spent = stopped.reason if self._recorder.is_spent else None
            self._divided = self._segment.divided(self._recorder.step, spent)
            return self._segment.without(stopped.reason)
        except UnrecordableError as reason:
            return self._segment.without(reason.reason)
        except Exception as error:  # noqa: BLE001  Segment.call_after decides
            if isinstance(error, OSError):
                self._key = None  # There may be files or a disk the next time.
            return error

    def _planned(self) -> Plan | Direct:
        """Return the plan, or the decision against one.

        If its kernels are ready, it has run, or can.
        """
        segment, recorder = self._segment, self._recorder
        trace = Trace(segment, recorder, self._inputs, self._registers, self._examination,
                      self._inlining)  # fmt: skip
        little = trace.too_little()
        if little is not None:
            return little
        structures = trace.structures()
        costly = trace.costs_more()
        if costly is not None:
            return costly
        plan = recorder.plan(trace.arrays, structures)
        self._layout = layouts.planned(plan, trace, self._inputs) if segment.shown else None
        asked = recorder.patient or recorder.moved or tiers.is_ready(plan)
        if self._layout is not None and asked:
            if not self._has_numpys_layout():
                return segment.without(OTHER_LAYOUT)
            self._layout = None
        if recorder.patient:
            tiers.wait(plan.kernels)
        if self._layout is None and tiers.is_ready(plan):
            self._is_ready = recorder.repeatable
            return plan if self._is_ready else self._computed(plan)
        if self._inlines():
            assert self._inlining is not None
            more = self._inlining.free - len(self._registers)
            plan.unfused = segment.calling.inlined(self._inlining, more, segment.users)
        return plan

    def _computed(self, plan: Plan) -> Plan:
        """Run the plan, and return it."""
        self._results = self._recorder.run(plan, flat(self._inputs))
        return plan

    def _has_numpys_layout(self) -> bool:
        """Return whether NumPy lays the results out as is planned.

        NumPy itself is asked, once for each kind of chunks; before kernels are compiled, the first
        run does.
        """
        segment, moved = self._segment, self._recorder.moved
        tried: Registers = list(map(hosted, self._registers)) if moved else list(self._registers)
        with np.errstate(all="ignore"):
            segment.calling.on_blocks(tried)
        return bool(layouts.seen(segment.results(tried), self._inputs, moved) == self._layout)

    def _inlines(self) -> bool:
        """Return whether what users' functions have called can be called in their place."""
        recorder, inlining = self._recorder, self._inlining
        if inlining is None or recorder.answers or not inlining.steps:
            return False  # Another chunk may go another way.
        # Errors are of numbers, which are not computed again.
        return not recorder.errors and not self._warns()

    def _warns(self) -> bool:
        """Return whether calls that are made twice warn twice, and not only of heeded errors."""
        quiet = self._inlining is None or self._inlining.is_quiet
        return bool(self._recorder.warned) or not quiet

    def _count(self) -> None:
        segment, recorder = self._segment, self._recorder
        found = segment.operation(-1), self._remembered.newness(self._key)
        with updating() as counters:
            counters.recorded[found] += 1
            counters.breaks.update(recorder.breaks)
            counters.apart.update(recorder.apart)
            if recorder.escape is not None:
                counters.breaks["plan", recorder.escape] += 1

    def _remember(self, plan: Plan) -> None:
        """Keep the plan if it holds for other inputs."""
        segment, others = self._segment, self._others
        lasts = self._recorder.escape is None and segment.replayed and not segment.varies
        if not (lasts and segment.errors == error_state() and self._examination.holds()):
            self._remembered.news, self._remembered.lasts = decisions.NOT_KEPT, False
            return
        self._remembered.unused += 1
        self._plans = Plans((plan,)) if others is None else others.first(plan)
        waits = self._layout is not None
        self._remembered.add(self._key, Waiting(plan.kernels) if waits else self._plans)

    def _run_planned(self, plan: Plan) -> None:
        """Have the plan, or the functions, run."""
        segment = self._segment
        if self._results is not None:
            return segment.finish(plan, *self._results, self._registers)
        self._recorder.postponed.discard()
        laid_out = segment.unfused(plan.kernels, self._key, self._inputs, self._registers, plan,
                                   self._layout)  # fmt: skip
        if not laid_out:
            segment.called(segment.without(OTHER_LAYOUT), self._key)
        elif self._plans is not None and self._layout is not None:
            self._remembered.add(self._key, self._plans)
