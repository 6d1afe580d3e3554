"""Goes through one kind of task with stand-ins, and notes what it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np
from dask.array.core import finalize
from dask.utils import apply

from gpusched import events
from gpusched.adapters.arrays import pass_located
from gpusched.adapters.tasks import DataNode, Task
from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.kernel import Kernel
from gpusched.graph.functions.known import (
    COMPUTED_BY,
    called_for_place,
    computes,
    known,
    pieces,
)
from gpusched.graph.functions.partials import bare, callables, name_of, parts, slow_part
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.rewrite import rewrite_labelled
from gpusched.graph.running.batch import calls_in
from gpusched.graph.running.cutfirst import PieceReturnedError
from gpusched.graph.running.inputs import flat
from gpusched.graph.running.segment import Segment
from gpusched.graph.running.traced import StoppedError, Trace
from gpusched.graph.safety import examination
from gpusched.graph.safety.examination import kind_of, said_of
from gpusched.graph.subgraph import copied, evaluate
from gpusched.inspection.gpu_placement import Devices, has_gpu_workers
from gpusched.inspection.standins import (
    Declared,
    arrays_in,
    concatenated,
    draw,
    elementwise,
    extent,
    fresh,
    from_source,
    is_getter,
    joined,
    multiplied,
    neighbours,
    ordinary,
    result_of,
)
from gpusched.inspection.task_contents import aliases_of, layer_of, result_key
from gpusched.inspection.task_memory import held, needed, peak, untouched
from gpusched.inspection.temporaries import temporaries
from gpusched.inspection.tracing import TracingRecorder
from gpusched.inspection.unfused_memory import Called, Holding, lazy_in, peak_of_calls
from gpusched.inspection.variant import CallUse, Halt, KernelUse, Variant
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.kernelbuilder import KernelBuilder
from gpusched.plan.plan import substitute, written
from gpusched.plan.tiles import TiledLaunches
from gpusched.plan.unjoined import UnjoinedLaunch
from gpusched.record.catalogue import has
from gpusched.record.record import Recorder
from gpusched.record.steps import ProgramStep
from gpusched.store.handles import CompiledKernel, Handle

UNKNOWN = object()
"""Stands in for a chunk of which nothing is known."""
LARGEST = 1 << 30
"""Bytes of a chunk that is stood in for."""
MOST_COPIED = 256 << 20
"""Bytes of stand-ins that a quick function is called on; zeros of the declared shape above."""


class UnknownResultError(Exception):
    """Nothing is known of a task's result: by what function's name, and why."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")


class Rehearser:
    """Goes through tasks of one graph with arrays that hold zeros.

    Kernels are generated, and neither compiled nor launched. Functions that are not known to be
    quick and free of side effects are not called.

    Parameters
    ----------
    layers
        The layers of the graph as it was built, by name.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, layers: Any) -> None:
        self.device = replace(HOST, compile=_uncompiled, empty=np.zeros)
        self.declared = Declared(layers)
        self.devices = Devices(has_gpu_workers())
        self._functions = Functions()
        self._variant = Variant(None, "", [])
        self._labels: dict[int, str] = {}
        self._sources: list[tuple[str, Any]] = []
        self._block: tuple[Any, ...] = ()
        self._holding = Holding([])
        self._aliases: dict[str, Any] = {}
        self._guessed: set[str] = set()
        """Layers of whose results no more is known than what dask has declared."""
        self._guesses = False
        """Whether the task gets, or makes, such a result."""

    def rehearse(self, node: Any, values: Mapping[Any, Any]) -> Variant:
        """Return what a task does; its inputs are stood in for by `values`."""
        with events.rehearsing():
            return self._rehearsed(node, values)

    def _rehearsed(self, node: Any, values: Mapping[Any, Any]) -> Variant:
        calls = [(layer, function) for function, _, layer in calls_in(node)]
        key = result_key(node)
        name = layer_of(key)
        variant = Variant(node.key, name, list(dict.fromkeys(layer for layer, _ in calls)))
        self._variant = variant
        self._block = key[1:] if isinstance(key, tuple) else ()
        self._aliases = {layer_of(target): alias for alias, target in aliases_of(node)}
        task, labels = rewrite_labelled(node, self._functions)
        variant.program = isinstance(getattr(task, "func", None), Program)
        given = {k: fresh(values[k]) for k in sorted(node.dependencies, key=str)}
        self._guesses = not self._guessed.isdisjoint(map(layer_of, given))
        missing = next((layer_of(k) for k, v in given.items() if v is UNKNOWN), None)
        if missing is not None:
            variant.unknown = f"nothing is known of what {missing.rpartition('-')[0]} gives it"
            variant.peak_known = variant.unfused_peak_known = False
            variant.result = self.declared.chunk(name, self._block)
            return variant
        variant.inputs = [(layer_of(k), a) for k, v in given.items() for a in arrays_in(v)]
        try:
            if variant.program:
                variant.result = self._program(task, labels, given, node)
            else:
                variant.result = self._plain(node, given)
        except UnknownResultError as unknown:
            variant.unknown = str(unknown)
            variant.result = self.declared.chunk(name, self._block)
            self._guessed.add(name)
        self._sizes(variant, [v for _, v in variant.inputs])
        return variant

    def _sizes(self, variant: Variant, inputs: list[Any]) -> None:
        result = variant.result
        variant.least_written = sum(map(extent, arrays_in(result)))
        variant.least_read = needed(variant.kernels, inputs)
        if variant.calls or variant.unjoined or not variant.kernels:
            variant.least_read = sum(map(extent, inputs))
        least = held([*inputs, *arrays_in(result)])
        variant.peak = max(variant.peak, least)
        variant.unfused_peak = max(variant.unfused_peak, least)
        if variant.unknown or any(map(self.declared.depends_on_values, variant.layers)):
            variant.peak_known = variant.unfused_peak_known = False

    # Tasks with a program -----------------------------------------------------------------

    def _program(self, task: Task, labels: list[Any], values: Mapping[Any, Any], node: Any) -> Any:
        program = task.func
        assert isinstance(program, Program)
        inputs = []
        self._labels = {}
        inside: dict[int, Any] = {}
        for number, arg in enumerate(task.args):
            if isinstance(arg, DataNode):
                # The same array may be several inputs.
                value = inside.setdefault(id(arg.value), fresh(arg.value))
            else:
                value = values[arg.key]
            inputs.append(value)
            if not isinstance(arg, DataNode):
                self._labels[number] = layer_of(arg.key)
            elif isinstance(value, np.ndarray):
                self._variant.inputs.append(("", value))
        for number, label in enumerate(labels):
            key = label if label is not None else self._variant.name
            self._labels[len(inputs) + number] = layer_of(key)
        registers = [*inputs, *[None] * len(program.steps)]
        self._holding = Holding(inputs)
        self.devices.begin(registers, self._labels)
        for number, segment in enumerate(program.segments):
            use = self.devices.decided(segment, registers, Recorder(self.device))
            self._variant.devices += [use] if use is not None else []
            try:
                self._run(segment, registers)
            except UnknownResultError:
                for later in program.segments[number + 1 :]:
                    self._refused([] if later.recorded else later.steps)
                raise
            self.devices.ran(segment, registers, use)
            for register in segment.dying:
                registers[register] = None
        self.devices.end(self._variant.name)
        found = self._holding.unfused(program, labels, node)
        self._variant.unfused_peak, self._variant.unfused_peak_known = found
        return ordinary(_small(registers[-1]))

    def _run(self, segment: Segment, registers: list[Any]) -> None:
        inputs = segment.values(registers)
        if not segment.recorded:
            return self._call(segment, registers)
        if segment.cut is not None:
            cuts = segment.cut.cuts
            whole = segment.cut.run(registers, lambda rest: self._rest(rest, cuts, registers))
            if whole is None:
                return None
            self._variant.apart.append(("slice", whole))
        reason = segment.obstacle(inputs, segment.key(inputs))
        if reason is not None:
            self._halt(segment.named[:1], reason)
            if reason.kind is GraphBreak.SMALL_CHUNKS:
                return self._unfused(segment, inputs, registers)
            return self._call(segment, registers)
        return self._record(segment, inputs, registers)

    def _rest(self, segment: Segment, cuts: Sequence[tuple[int, ProgramStep]],
              registers: list[Any]) -> None:  # fmt: skip
        """Run what takes pieces that are cut off."""
        self._holding.cut_off(cuts, registers)
        self._run(segment, registers)

    def _record(self, segment: Segment, inputs: tuple[Any, ...], registers: list[Any]) -> None:
        recorder = segment.recorder(TracingRecorder, self.device)
        before = self._holding.alive(registers)
        try:
            trace = Trace(segment, recorder, inputs, registers)
            little = trace.too_little()
            if little is not None:
                small = little.reason.kind is GraphBreak.SMALL_CHUNKS
                self._halt(segment.named[:1] if small else segment.named[-1:], little.reason)
                self._broken(recorder, counted=False)
                return self._unfused(segment, inputs, registers)
            outputs = trace.structures()
            costly = trace.costs_more()
            if costly is not None:
                self._halt(segment.named[-1:], costly.reason)
                return self._unfused(segment, inputs, registers)
            trace.finish(registers, outputs)
        except PieceReturnedError:
            raise
        except UnrecordableError as reason:
            stopped = isinstance(reason, StoppedError)
            spent = reason.reason if recorder.is_spent else None
            parts = segment.divided(recorder.step, spent) if stopped else []
            for part in parts:
                self._run(part, registers)
            if parts:
                return None
            self._halt(segment.named[-1:], reason.reason)
            return self._call(segment, registers)
        except Exception as error:  # whatever a function makes of zeros
            told = f"{type(error).__name__}: {error}"
            if self._guesses:  # It may be given something else, such as a dictionary.
                name = name_of(segment.steps[-1][1].function)
                raise UnknownResultError(name, told) from error
            self._halt(segment.named[-1:], GraphBreak.RECORDING("recording failed", told))
            return self._call(segment, registers)
        self._holding.note(segment, trace.local, registers)
        plan = recorder.plan(trace.arrays, outputs)
        steps = list(zip(plan.steps, plan.dying, strict=True))
        if segment.replayed and recorder.escape is None:
            self._variant.tiles += [
                step for step, _, _ in plan.stages if isinstance(step, TiledLaunches)
            ]
            self._variant.unjoined += [
                step for step in plan.steps if isinstance(step, UnjoinedLaunch)
            ]
        else:
            # Each task is recorded anew, and nothing is let go before its end.
            before += arrays_in(trace.local)
            steps = [(step, ()) for step in recorder.steps]
        most = peak(plan, steps, recorder.registers(), before)
        self._variant.peak = max(self._variant.peak, most)
        places = [k for k, v in zip(segment.inputs, inputs, strict=False) for _ in flat((v,))]
        labels = {r: self._labels.get(places[number], "") for number, r in trace.arrays
                  if number < len(places)}  # fmt: skip
        self._note(recorder, labels, {id(step) for step, _ in steps})

    def _note(self, recorder: TracingRecorder, arguments: dict[int, str],
              running: set[int]) -> None:  # fmt: skip
        variant = self._variant
        unjoined = {each.outputs: each for each in variant.unjoined}
        for builder, each in recorder.launches:
            launch = unjoined.get(each.outputs, each)
            variant.kernels.append(KernelUse(builder, launch, recorder, self._labels, arguments))
        for name, step, call, taken, given in recorder.calls:
            layer = self._labels.get(step, variant.name)
            if call is None or id(call) in running:
                variant.calls.append(CallUse(name, layer, taken, given))
        self._broken(recorder, counted=True)
        variant.apart += recorder.apart
        if recorder.escape is not None:
            variant.halts.append(Halt("plan", recorder.escape, variant.name))
        variant.halts += _splits(recorder, self._labels, variant.name)

    def _broken(self, recorder: TracingRecorder, counted: bool) -> None:
        """Note the calls that no kernel could do."""
        for broken in recorder.broken:
            layer = self._labels.get(broken.origin.step, self._variant.name)
            site = broken.origin.site
            self._variant.halts.append(
                Halt(broken.operation, broken.reason, layer, site, counted=counted)
            )

    def _unfused(self, segment: Segment, inputs: tuple[Any, ...], registers: list[Any]) -> None:
        """Note the calls of a segment that could be recorded, and is not; learn what they give."""
        recorder = segment.recorder(TracingRecorder, self.device)
        try:
            trace = Trace(segment, recorder, inputs, registers)
            local = trace.local
            for register, step in segment.steps:
                if computes(step.function):
                    read = sum(value.nbytes for value in _given(step, local))
                    written = sum(n.size * n.dtype.itemsize for n in lazy_in(local[register]))
                    layer = self._labels.get(register, self._variant.name)
                    use = CallUse(name_of(step.function), layer, read, written)
                    self._variant.calls.append(use)
            before = list(registers)
            trace.finish(registers, trace.structures())
        except (Exception, UnrecordableError):  # noqa: BLE001  whatever a function makes of zeros
            # Then they are called one by one.
            return self._call(segment, registers)
        self._holding.note(segment, local, registers)
        self._called(segment, before)

    def _called(self, segment: Segment, before: list[Any]) -> None:
        """Note the memory of a segment whose functions are called one by one."""
        most, exact = self._holding.called(segment, before)
        self._variant.peak = max(self._variant.peak, most)
        self._variant.peak_known &= exact

    # Calls --------------------------------------------------------------------------------

    def _call(self, segment: Segment, registers: list[Any]) -> None:
        before = list(registers)
        for number, (register, step) in enumerate(segment.steps):
            layer = self._labels.get(register, self._variant.name)
            args, kwargs = substitute(step.args, registers), substitute(step.kwargs, registers)
            try:
                registers[register] = ordinary(self._value_of(step.function, args, kwargs, layer))
            except UnknownResultError:
                self._refused([] if segment.recorded else segment.steps[number:])
                raise
            given, value = _given(step, registers), registers[register]
            reason = None if step.recorded else unfusible(step.function, args, kwargs)
            self._note_call(_named(step.function, args), layer, given, value, reason, _users(step))
            self._holding.made[register] = arrays_in(value)
        self._called(segment, before)
        for register in (r for dying in segment.calling.last_uses for r in dying):
            registers[register] = None

    def _refused(self, steps: Iterable[tuple[int, ProgramStep]]) -> None:
        """Note why calls are not recorded of which no more is known."""
        for register, step in steps:
            layer = self._labels.get(register, self._variant.name)
            self._variant.halts += [
                Halt(name, reason, layer, None, _users(step))
                for name, reason in examination.reasons([step])
            ]

    def _note_call(self, function: Any, layer: str, given: list[Any], value: Any,
                   reason: tuple[bool, Reason] | None, users: Any,
                   counted: bool = True) -> None:  # fmt: skip
        """Note a call: what it moves, and why no kernel does it, as one of the user's functions."""
        name = name_of(function)
        if reason is not None:
            own, told = reason
            self._variant.halts.append(
                Halt(name, told, layer, None, users if own else None, counted and own)
            )
        results = [v for v in arrays_in(value) if not any(np.may_share_memory(v, g) for g in given)]
        if results or reason is not None:
            written = sum(map(extent, results))
            read = written if _reads_its_result(function, given) else sum(map(extent, given))
            source = is_getter(function) and not given
            self._variant.calls.append(CallUse(name, layer, read, written, reason is None, source))

    def _value_of(self, function: Any, args: Any, kwargs: Any, layer: str) -> Any:
        """Return what stands in for the result of a call."""
        if function is apply and len(args) > 1:
            function, kwargs, args = args[0], dict(*args[2:]), tuple(args[1])
        if any(value is UNKNOWN for value in (*args, *kwargs.values())):
            raise UnknownResultError(name_of(function), "gets a chunk of which nothing is known")
        try:
            found = _inferred(function, args, kwargs)
        except Exception as error:  # whatever a function makes of no elements
            raise UnknownResultError(name_of(function), str(error)[:200]) from error
        if found is not None:
            return found
        given = arrays_in([*args, *kwargs.values()])
        if _harmless(function, args, kwargs) and sum(map(extent, given)) <= MOST_COPIED:
            try:
                with np.errstate(all="ignore"):
                    return untouched(result_of(function, args, kwargs), given)
            except Exception as error:  # whatever a function makes of zeros
                raise UnknownResultError(name_of(function), str(error)[:200]) from error
        found = self.declared.chunk(layer, self._block, of=self._variant.name)
        if found is None and layer in self._aliases:
            alias = self._aliases[layer]
            found = self.declared.chunk(layer_of(alias), alias[1:])
        if found is None:
            raise UnknownResultError(
                name_of(function), "is not called, and the shape of what it returns is not known"
            )
        self._guessed.add(self._variant.name)
        self._guesses = True
        return found

    def _halt(self, steps: Sequence[tuple[int, ProgramStep]], reason: Reason) -> None:
        for register, step in steps:
            layer = self._labels.get(register, self._variant.name)
            self._variant.halts.append(Halt(name_of(step.function), reason, layer))

    # Tasks without ------------------------------------------------------------------------

    def _plain(self, node: Any, values: Mapping[Any, Any]) -> Any:
        """Return the result of a task that is run as dask runs it."""
        unknown: list[UnknownResultError] = []
        calls: list[Called] = []

        def call(task: Task, args: list[Any], kwargs: dict[str, Any], key: Any) -> Any:
            function, layer = task.func, layer_of(key)
            given = arrays_in([*args, *kwargs.values()])
            try:
                value = self._value_of(function, tuple(args), kwargs, layer)
            except UnknownResultError as error:
                unknown.append(error)
                value = UNKNOWN
            reason = unfusible(function, args, kwargs)
            named = _named(function, args)
            self._note_call(named, layer, given, value, reason, bare(named), counted=False)
            calls.append(Called(given, arrays_in(value), temporaries(function, given)))
            return value

        use = self.devices.plain(node, values, self._variant.name)
        self._variant.devices += [use] if use is not None else []
        result = evaluate(node, values, call)
        if unknown:
            raise unknown[0]
        variant = self._variant
        made = {id(a) for each in calls for a in each.made}
        read = [a for each in calls for a in each.given if id(a) not in made]
        inputs = [*read, *(a for _, a in variant.inputs)]
        variant.peak, variant.peak_known = peak_of_calls(calls, inputs, arrays_in(result))
        variant.unfused_peak, variant.unfused_peak_known = variant.peak, variant.peak_known
        if copied(node):
            largest = max((extent(a) for a in read), default=0)
            variant.joined = extent(result), largest
        return ordinary(_small(result))


def _named(function: Any, args: Sequence[Any]) -> Any:
    """Return the function that a call is reported by: what one of dask's own calls with others."""
    return args[0] if function is apply and args else called_for_place(function, args)


def _users(step: ProgramStep) -> Any:
    """Return the function that a step calls, or that one of ours calls for it."""
    function = bare(step.function)
    given = map(bare, (*step.args, *step.kwargs.values()) if has(function, "examined") else ())
    return next((each for each in given if isinstance(each, FunctionType)), function)


def _uncompiled(kernel: Kernel) -> Handle:
    """Return something instead of a kernel, which does nothing when called."""
    return Handle.of(CompiledKernel(kernel, lambda *operands: None))


def _small(value: Any) -> Any:
    """Return a value; `UnknownResultError` for an array too large to be stood in for."""
    if isinstance(value, np.ndarray) and value.nbytes > LARGEST:
        raise UnknownResultError("chunks of more than 1 GiB", "too large to be stood in for")
    return value


def _harmless(function: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a function may be called on stand-ins, with what it is given.

    So may each one of a composition, and each function that it is given, which it may call.
    """
    given = (function, *callables((args, kwargs)))
    return all(known(p) or slow_part(p) is None for each in given for p in parts(each))


def _inferred(function: Any, args: Any, kwargs: Any) -> Any:
    """Return what a call would give, as shapes show; None where they do not."""
    for rule in (from_source, draw, joined, concatenated, multiplied, neighbours):
        found = rule(function, args)
        if found is not None:
            return found
    return elementwise(function, args, kwargs)


def _reads_its_result(function: Any, given: list[Any]) -> bool:
    """Return whether a call reads no more than it returns: a piece of an array or of a source."""
    if bare(function) is pieces:
        return True
    # Of a Zarr array, an HDF5 dataset and the like, the rest is not read.
    return is_getter(function) and bool(given) and not arrays_in(given)


def _given(step: ProgramStep, registers: list[Any]) -> list[Any]:
    given = flat(tuple(registers[k] for k in sorted(step.registers)))
    return [value for value in given if hasattr(value, "nbytes")]


def unfusible(function: Any, args: Iterable[Any],
              kwargs: Mapping[str, Any]) -> tuple[bool, Reason] | None:  # fmt: skip
    """Return whether a function is the user's own, and why no kernel does it; None if one may.

    Parameters
    ----------
    function
        The function.
    args, kwargs
        What it is called with: arrays and other values.
    """
    args = tuple(args)
    if _harmless(function, args, kwargs) or bare(function) is finalize:
        return None
    if function is pass_located:
        return False, examination.PLACED
    library = getattr(bare(function), COMPUTED_BY, None)
    if library is not None:
        return False, GraphBreak.MODEL(f"a model that {library} computes")
    names = {name: kind_of(value) for name, value in kwargs.items()}
    reason = examination.examined(function, map(kind_of, args), names).reason
    if reason is None:
        return None
    if reason.kind is GraphBreak.LIBRARY:
        return False, GraphBreak.NO_KERNEL("no kernel for this function")
    said = said_of(function, reason)
    return said.kind is not GraphBreak.LIBRARY, said


def _splits(recorder: TracingRecorder, layers: dict[int, str], name: str) -> list[Halt]:
    """Return why a recording takes more than one kernel, where no call stands between them."""
    found = []
    if recorder.flushes:
        told = GraphBreak.TOO_MANY("more operations than one kernel may hold")
        found.append(Halt("kernel", told, name, counted=False))
    builders = [builder for builder, _ in recorder.launches]
    reduced = {
        register
        for builder, launch in recorder.launches
        for register in written(launch)
        if builder.group.axes
    }
    for builder in builders:
        if not reduced.isdisjoint(builder.registers):
            found.append(_reduction(recorder, builder, layers, name))
    return found


def _reduction(recorder: TracingRecorder, builder: KernelBuilder, layers: dict[int, str],
               name: str) -> Halt:  # fmt: skip
    origin = recorder.origins.get(id(builder.group.nodes[0]))
    layer = layers.get(origin.step, name) if origin else name
    told = GraphBreak.REDUCTION("a reduction's result is needed before the rest can be computed")
    return Halt("kernel", told, layer, origin.site if origin else None, counted=False)
