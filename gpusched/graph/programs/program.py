"""A chunk task as data: its little graph of calls, run fused where its functions are known."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from types import ModuleType
from typing import Any

import dask
import numpy as np
from dask.utils import methodcaller
from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched import forks
from gpusched.graph.functions.libraries import KEPT, found_by_name, package
from gpusched.graph.functions.partials import bare, callables, names_of, parts
from gpusched.graph.functions.unrecorded import conflict, may_change, sees, shown_registers
from gpusched.graph.placement.devicechoice import note_returns
from gpusched.graph.placement.placing import begin
from gpusched.graph.programs.payload import named_code, pack, stand, unpack
from gpusched.graph.running.batch import Batch
from gpusched.graph.running.decisions import UNKNOWN, ByToken, Remaining
from gpusched.graph.running.remembered import Content
from gpusched.graph.running.segment import Segment
from gpusched.graph.safety.examination import Examination
from gpusched.newest import Newest
from gpusched.placed import TAKES_PLACED
from gpusched.plan import shortage
from gpusched.plan.grids import is_join
from gpusched.plan.overrides import Overrides, active
from gpusched.plan.plan import Register, Registers
from gpusched.plan.tiers import UNFUSED
from gpusched.record.catalogue import has
from gpusched.record.recorded import RecordedFunction
from gpusched.record.steps import ProgramStep
from gpusched.roles import current_key


class Program(ByToken):
    """What a task does with its inputs; called instead of the task's function.

    Parameters
    ----------
    steps
        Calls, operands before their users.  Register ``k`` holds input ``k``; step ``k`` writes
        register ``inputs + k``; the last is the result.
    inputs
        Number of inputs.
    overrides
        What was said of its kernels where its graph was optimised; by default what is here.
    lent
        Whether tasks have its functions together that have each their own in plain dask, which
        unpickles them.
    segments
        The steps in groups, if these are known.

    Notes
    -----
    Immutable, but for the plans its segments remember; shared by all equal tasks of a process,
    and by threads.
    """

    def __init__(
        self, steps: tuple[ProgramStep, ...], inputs: int, overrides: Overrides | None = None,
        lent: bool = False, segments: list[Segment] | None = None,
    ) -> None:  # fmt: skip
        self.steps = steps
        self.inputs = inputs
        self.overrides = active() if overrides is None else overrides
        self.remaining = Remaining()
        """Its tasks in the graph that was made last."""
        self._lent = lent
        self.segments = self._segments(steps) if segments is None else segments
        self.received = False
        """Whether another process has sent it."""
        self._content: Any = None
        self.names: dict[tuple[str, str], Any] = {}
        """What names stood for when it was received: other processes may replace functions."""
        self.lasts = False
        """Whether it is kept between graphs: what it calls holds no arrays of the user's."""
        self._shown: Callable[[], Program | None] = lambda: None
        self._made_of: Program | None = None
        """What is kept with it, as graphs may have use of it, too."""
        self._payload: bytes | None = None
        self._token = ""
        self._examined: list[Examination] = []
        self._read = b""
        """What was in the arrays that functions read when it was pickled."""

    __gpusched_takes_placed__ = True

    @property
    def __name__(self) -> str:
        return "fused-" + "-".join(names_of(step.function for step in self.steps))

    def __repr__(self) -> str:
        return f"<Program {self.__name__}>"

    def __call__(self, *inputs: Any, into: np.ndarray | None = None) -> Any:
        """Run the program on the inputs of a task.

        Parameters
        ----------
        *inputs
            The task's.
        into
            A contiguous array that kernels may write the result to, which is returned then.
        """
        registers: Registers = [*inputs, *[None] * len(self.steps)]
        placing = begin(self.overrides, inputs)
        if placing is None and self.steps:
            registers[-1] = into
        changed = shown = False
        try:
            for segment in self.segments if shortage.wanted() == 1 else self._apart:
                if segment.guards:
                    changed = not all([inputs[k].holds() for k in segment.guards])
                if changed:
                    segment = segment.as_it_is(inputs)
                if placing is None:
                    segment.run(registers)
                else:
                    placing.run(segment, registers)
                if segment.lent and segment.shows(registers):
                    shown = True
                    break
        except Exception as error:
            names = ", ".join(names_of(step.function for step in self.steps))
            key = current_key()
            where = "" if key is None else f", key {key}"
            error.add_note(f"gpusched: raised in a chunk task of {names}{where}")
            raise
        if placing is not None:
            placing.finish()
        # Whoever changes what it shows may not change what the next task reads.
        return self._for_one(lends=False)(*inputs) if shown else registers[-1]

    def identify(self, content: Any) -> None:
        """Have plans found by what the program does, its functions of the user's left out.

        Parameters
        ----------
        content
            Equal for programs that differ in these functions alone.
        """
        self._content = content
        for number, segment in enumerate(self.segments):
            segment.identify((content, number))

    @cached_property
    def _apart(self) -> list[Segment]:
        """The segments for parts of chunks: arrays that are joined are joined as a whole."""
        if not any(segment.joins for segment in self.segments):
            return self.segments
        return self._segments(tuple(
            replace(step, recorded=step.recorded and not is_join(step.function))
            for step in self.steps
        ))  # fmt: skip

    def _segments(self, steps: tuple[ProgramStep, ...]) -> list[Segment]:
        if self.overrides.tier == UNFUSED:
            steps = tuple(replace(step, recorded=False) for step in steps)
        segments = _segments(steps, self.inputs)
        asked = False
        for segment in segments:
            if asked:
                segment.guards = ()
            # What runs before a segment may change what it calls.
            asked |= bool(segment.guards)
            asked &= not any(may_change(step) for _, step in segment.steps)
            segment.overrides = self.overrides
            segment.remaining = self.remaining
            segment.lent = self._lent
            segment.cut_first()
        note_returns(segments)
        return segments

    def payload(self) -> tuple[str, bytes]:
        """Return the program's token and its pickled steps.

        A program that was received goes on as it came. Others are pickled again, as plain dask
        does, where they call functions that have changed since, or may have.
        """
        if self._payload is not None and (self.received or self._is_packed()):
            return self._token, self._payload
        found = self._examinations()
        read = _contents(found)
        payload = pack(self.steps, self.inputs, self.overrides)
        told = payload + named_code(self.steps).encode()
        token = hashlib.blake2b(told, digest_size=16).hexdigest()
        self._payload, self._token = payload, token
        # Last, as another thread goes by them.
        self._examined, self._read = found, read
        return token, payload

    def _is_packed(self) -> bool:
        """Return whether all functions are as they were when they were pickled last."""
        if self._changes:
            return False
        found = self._examinations()
        # Of what is not safe nothing is known, since the function was changed.
        known = found == self._examined and not any([each.refused for each in found])
        return known and _contents(found) == self._read

    def _examinations(self) -> list[Examination]:
        found = [segment.examined() for segment in self.segments if segment.recorded]
        return found + [each for program in self._batched for each in program._examinations()]

    @cached_property
    def _changes(self) -> bool:
        """Whether it calls functions of the user's of which nothing is known."""
        called: list[Any] = [s for s in self.steps if not (s.recorded and s.replayed)]
        calls = [
            (step.function, step.args, step.kwargs)
            for step in (*called, *self._batch)
            if type(step.function) not in (Batch, Program)
        ]
        return any(program._changes for program in self._batched) or not lasts(calls)

    @cached_property
    def conflict(self) -> ProgramStep | None:
        """The step that may change what another one reads, see there; None if there is none."""
        found: ProgramStep | None = conflict(self.steps, self.inputs)
        return found

    @cached_property
    def sees(self) -> bool:
        """Whether it calls a function that may see how its arguments are laid out in memory."""
        return any(map(sees, (*self.steps, *self._batch)))

    def shown(self) -> Program:
        """Return the program whose result is laid out in memory as NumPy's own is."""
        if not self.steps:
            return self  # It returns what it is given.
        found = self._shown()
        if found is None:
            steps = (*self.steps[:-1], replace(self.steps[-1], shown=True))
            found = Program(steps, self.inputs, self.overrides)
            found._made_of = self
            if self._content is not None:
                found.identify((self._content, "shown"))
            self._shown = weakref.ref(found)
        if self.lasts:
            keep(found)
        return found

    @cached_property
    def _batch(self) -> list[ProgramStep]:
        """The calls of a batch."""
        batches = [step.function for step in self.steps if type(step.function) is Batch]
        return [step for batch in batches for step in batch.steps]

    @property
    def is_batch(self) -> bool:
        """Whether it runs neighbouring tasks one after the other."""
        return bool(self._batch)

    @property
    def _batched(self) -> list[Program]:
        """The programs of a batch."""
        return [step.function for step in self._batch if type(step.function) is Program]

    @cached_property
    def has_state(self) -> bool:
        """Return whether it calls or is given functions of the user's that may change.

        Counters and generators of random numbers go with a task as they are when it is sent.
        """
        return any(not step.recorded and _has_state(step) for step in self.steps)

    def for_task(self) -> Program:
        """Return what one task calls that was sent here, with such functions as they were sent.

        Plain dask unpickles the functions of each task. What is recorded is shared.
        """
        return self._for_one() if self._is_for_one else self

    @property
    def _is_for_one(self) -> bool:
        """Whether each task has it for itself: what it calls, or a program in it, may change."""
        refused = any([bool(s.own and s.examined().refused) for s in self.segments])
        return self.has_state or refused or any(map(_may_change_inside, self.steps))

    def _for_one(self, lends: bool = True) -> Program:
        """Return a program that has what its functions read for itself.

        What one of its functions changes another one may read, that runs after it. Of code there is
        nothing to change.

        Parameters
        ----------
        lends
            Whether it may have what runs before anything is changed together with other tasks.
        """
        assert self._payload is not None
        sent, inputs, overrides = unpack(self._payload)
        by_register = dict(enumerate(sent, inputs))
        segments = []
        for segment in self.segments:
            examination = segment.examined()
            ours = segment.recorded and examination.refused is None
            shared = ours and (lends or examination.is_code)
            segments.append(segment if shared else segment.of_task(by_register))
            changing = [s for _, s in segment.steps if _has_state(s) or _may_change_inside(s)]
            lends &= ours or not changing
        kept = zip(sent, self.steps, strict=True)
        steps = tuple([replace(new, recorded=old.recorded) for new, old in kept])
        made = Program(steps, inputs, overrides, segments=segments)
        made._payload, made._token, made.remaining = self._payload, self._token, self.remaining
        made.received = True
        return made

    def __reduce__(self) -> Any:
        return restore, (*self.payload(), self.remaining)

    def __dask_tokenize__(self) -> Any:
        return ("gpusched.Program", self.payload()[0])


def _contents(found: list[Examination]) -> bytes:
    """Return a digest of what is in the arrays that functions read from outside."""
    digest = hashlib.blake2b(digest_size=16)
    for array in chain.from_iterable(each.arrays for each in found):
        digest.update(repr((array.dtype, array.shape)).encode())
        digest.update(array.tobytes())
    return digest.digest()


def _has_state(step: ProgramStep) -> bool:
    """Return whether a step calls or is given functions of the user's, which may change."""
    found = step.function, *callables((step.args, step.kwargs))
    return any(_is_own(part) for function in found for part in parts(function))


def _may_change_inside(step: ProgramStep) -> bool:
    """Return whether a step is a program, or some, of which what one calls may change."""
    if type(step.function) is Batch:
        return any(map(_may_change_inside, step.function.steps))
    return type(step.function) is Program and step.function._is_for_one


def _is_own(function: Any) -> bool:
    """Return whether a function, or an object's class, is of no library, or one has an object."""
    if package(function) not in KEPT:
        return True
    without = ModuleType | type | np.ufunc | None
    return not isinstance(getattr(function, "__self__", None), without)


_restored: weakref.WeakValueDictionary[str, Program] = weakref.WeakValueDictionary()
_lock = forks.lock()


def restore(token: str, payload: bytes, remaining: Remaining = UNKNOWN) -> Program:
    """Return the program of that token for one task."""
    program = shared(token, payload)
    program.remaining.learn(remaining)
    return program.for_task()


def shared(token: str, payload: bytes) -> Program:
    """Return the program of that token: the same one as before, if this process still has it."""
    found = known(token)
    if found is not None:
        return found
    return _made(token, payload)


def _made(token: str, payload: bytes) -> Program:
    """Return a program as it is here, and keep it for the next tasks."""
    # Outside the lock: the steps of a batch are programs, which are restored here, too.
    names: dict[tuple[str, str], Any] = {}
    steps, inputs, overrides = unpack(payload, names)
    if not dask.config.get("gpusched.fusion.enabled", True):
        # This process is told not to fuse, whoever has sent the program.
        steps = tuple(replace(step, recorded=False) for step in steps)
    made = Program(steps, inputs, overrides, lent=True)
    for program in made._batched:
        names.update(program.names)
    made._payload, made._token, made.received, made.names = payload, token, True, names
    # Processes may have other functions of these names than they had.
    made.identify(Content((token, tuple(map(id, names.values()))), names))
    with _lock:
        program = _restored.setdefault(token, made)
        if not stand(program.names):
            program = _restored[token] = made
    keep(program)
    return program


def known(token: str) -> Program | None:
    """Return the program of that token, if this process has it.

    It calls what its names stand for now, as if it had just been received.
    """
    with _lock:
        program = _restored.get(token)
    if program is None:
        return None
    if not stand(program.names):
        return _made(*program.payload())
    keep(program)
    return program


def _segments(steps: tuple[ProgramStep, ...], inputs: int) -> list[Segment]:
    """Group the steps into segments that are recorded as a whole, and single calls between them.

    Functions that decide for themselves where they run are not grouped with others.
    """
    shown = shown_registers(steps, inputs)
    steps = _with_numpy_s_views(steps, inputs)
    done = set(range(inputs))
    waiting = list(range(len(steps)))
    parts: list[tuple[bool, list[int]]] = []
    recorded = False
    while waiting:
        part: list[int] = []
        for k in list(waiting):
            alike = not part or _decides(steps[k]) == _decides(steps[part[0]])
            if steps[k].recorded == recorded and alike and steps[k].registers <= done:
                part.append(k)
                waiting.remove(k)
                done.add(inputs + k)
        if part:
            parts.append((recorded, part))
        recorded = not recorded
    found = [_segment(steps, inputs, parts, number) for number in range(len(parts))]
    for segment in found:
        segment.shown = not shown.isdisjoint(segment.outputs)
    return found


def _with_numpy_s_views(steps: tuple[ProgramStep, ...], inputs: int) -> tuple[ProgramStep, ...]:
    """Return steps of which none is recorded that gives views to functions which are not.

    Those may see that it is one: by its strides, or as `reshape` copies it or not before it is
    changed in place. A view that is recorded is computed as an array of its own.
    """
    found = list(steps)
    shown = {inputs + k for k, step in enumerate(steps) if step.shown}
    for k, step in reversed(list(enumerate(steps))):
        if step.recorded and inputs + k in shown and has(bare(step.function), "view"):
            found[k] = replace(step, recorded=False)
        if not found[k].recorded:
            shown |= step.registers
    return tuple(found)


def _decides(step: ProgramStep) -> bool:
    return hasattr(step.function, TAKES_PLACED)


def _segment(steps: tuple[ProgramStep, ...], inputs: int, parts: list[tuple[bool, list[int]]],
             number: int) -> Segment:  # fmt: skip
    recorded, part = parts[number]
    written = {inputs + k for k in part}
    later = {r for _, other in parts[number + 1 :] for k in other for r in steps[k].registers}
    outputs = tuple(sorted(written & (later | {inputs + len(steps) - 1})))
    needed = set().union(*(steps[k].registers for k in part)) - written if part else set()
    calls = [(inputs + k, steps[k]) for k in part]
    return Segment(calls, tuple(sorted(needed)), outputs, recorded, tuple(sorted(needed - later)))


RECENT = 256
"""Programs that are kept between the graphs that use them, with the plans that they have by then.

A plan is recorded by the first chunk that runs a program. A graph that comes again, as that of the
next time step does, would record it again for as many chunks as there are threads."""

_recent: Newest[int, Program] = Newest(RECENT)


def keep(program: Program) -> None:
    """Keep a program until that many others have been kept or used since."""
    _recent[id(program)] = program


_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis), np.dtype, methodcaller,
          Register)  # fmt: skip


def lasts(value: Any) -> bool:
    """Return whether a value is, or holds, functions of libraries and plain values only.

    Others may hold arrays, as may arguments that are given with them; and they change, as a
    notebook's do.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.programs.program import lasts
    >>> lasts(np.add), lasts(partial(np.sum, axis=0)), lasts(lambda x: x + 1)
    (True, True, False)
    """
    if isinstance(value, _PLAIN):
        return True
    if type(value) in (tuple, list):
        return all(map(lasts, value))
    if type(value) is dict:
        return all(map(lasts, value.values()))
    if type(value) is partial:
        return lasts([value.func, value.args, value.keywords])
    if isinstance(value, Compose):
        return lasts([value.first, *value.funcs])
    return value.lasts if isinstance(value, RecordedFunction) else found_by_name(value)
