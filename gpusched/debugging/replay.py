"""One task gone through with its real inputs: what it computes, and out of what."""

from __future__ import annotations

from bdb import BdbQuit
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpusched.adapters.tasks import DataNode, GraphNode, Task
from gpusched.backends.devices import HOST, Device
from gpusched.breaks import GraphBreak, Reason
from gpusched.debugging.host_copies import Placement
from gpusched.debugging.origins import (
    Called,
    FromCall,
    FromKernel,
    FromParts,
    FromTask,
    Held,
    Origin,
    held,
    pairs,
)
from gpusched.debugging.sources import name_of
from gpusched.debugging.subject import name_of_layer
from gpusched.graph.functions.partials import bare
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.rewrite import rewrite_labelled
from gpusched.graph.running.cutfirst import PieceReturnedError
from gpusched.graph.running.segment import Segment
from gpusched.graph.running.traced import Trace
from gpusched.graph.subgraph import evaluate
from gpusched.inspection.dry_run import unfusible
from gpusched.inspection.places import (
    place_of_function,
    place_of_layer,
    place_of_site,
    variable_of_layer,
)
from gpusched.inspection.standins import arrays_in
from gpusched.inspection.task_contents import layer_of
from gpusched.inspection.tracing import RecordedAt, TracingRecorder
from gpusched.inspection.variant import KernelUse
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.kernelbuilder import KernelBuilder, Part
from gpusched.plan.overrides import OverrideError
from gpusched.plan.plan import Call, Empty, Launch, PartLaunch, Register, Registers, substitute
from gpusched.record.chunk import LazyChunk, node_of
from gpusched.record.steps import ProgramStep
from gpusched.store.handles import Handle

CUT = "it shows a piece of a chunk"
"""Why no kernel cuts pieces off."""


class Execution:
    """How kernels and functions are run."""

    device: Device = HOST

    def kernel(self, use: KernelUse) -> Handle:
        """Return what a launch calls: the kernel as it is compiled for."""
        return use.launch.kernel

    def call(self, called: Called) -> Any:
        """Return what a function gives."""
        return called.function(*called.args, **called.kwargs)


class Run:
    """A task gone through.

    Parameters
    ----------
    node
        The task.
    values
        What it depends on, by key: arrays in host memory.
    functions
        Of the graph.
    placement
        Which of these arrays are copies of arrays on a GPU.
    execution
        How kernels and functions are run; compiled, unless it says otherwise.

    Notes
    -----
    Belongs to one thread. Keeps every array that kernels and functions have written.
    """

    def __init__(self, node: GraphNode, values: Mapping[Any, Any], functions: Functions,
                 placement: Placement, execution: Execution | None = None) -> None:  # fmt: skip
        self.execution = execution or Execution()
        self._placement = placement
        self._origins: dict[int, Origin] = {}
        self._kept: list[Any] = []
        self._keys: dict[int, Any] = {}
        self._labels: dict[int, str] = {}
        self._scalars: list[Any] = []
        for key, value in values.items():
            self._note(value, FromTask(key))
        for key, value in held(node):
            self._note(placement.bring(value), Held(key))
        task, labels = rewrite_labelled(node, functions)
        if isinstance(getattr(task, "func", None), Program):
            self.result = self._program(task, labels, values)
        else:
            self.result = self._plain(node, values)

    def origin(self, array: Any) -> Origin | None:
        """Return where an array comes from; None for one that the graph itself holds."""
        return self._origins.get(id(array))

    def scalar(self, number: Any) -> Any:
        """Return the NumPy scalar that a kernel has as a constant; None for one of the user's."""
        for value in self._scalars:
            given = value.astype(np.asarray(number).dtype)
            if given == number or (given != given and number != number):
                return value
        return None

    def _note(self, value: Any, origin: Origin) -> None:
        for array in arrays_in(value):
            # What a function returns may be what it was given.
            self._origins.setdefault(id(array), origin)
            self._kept.append(array)
            if isinstance(array, np.number):
                self._scalars.append(array)

    # Tasks with a program -----------------------------------------------------------------

    def _program(self, task: Task, labels: list[Any], values: Mapping[Any, Any]) -> Any:
        program = task.func
        assert isinstance(program, Program)
        inputs = [
            self._placement.bring(arg()) if isinstance(arg, DataNode) else values[arg.key]
            for arg in task.args
        ]
        keys = [*[None if isinstance(a, DataNode) else a.key for a in task.args], *labels]
        self._keys = {k: task.key if key is None else key for k, key in enumerate(keys)}
        self._labels = {number: layer_of(key) for number, key in self._keys.items()}
        registers: Registers = [*inputs, *[None] * len(program.steps)]
        for segment in program.segments:
            self._segment(segment, registers)
        return registers[-1]

    def _segment(self, segment: Segment, registers: Registers) -> None:
        """Go through a segment as a task runs it: what takes only pieces, with these."""
        cut = segment.cut
        if cut is None or cut.run(registers, lambda rest: self._rest(rest, cut.cuts, registers)):
            self._whole(segment, registers)

    def _rest(self, segment: Segment, cuts: Sequence[tuple[int, ProgramStep]],
              registers: Registers) -> None:  # fmt: skip
        """Go through what takes pieces that have been cut off, each of which has its origin."""
        for register, step in cuts:
            args = substitute(step.args, registers)
            called = self._named(step.function, args, {}, self._keys[register], CUT)
            called.direct, called.result = True, registers[register]
            self._note(called.result, FromCall(called))
            if self._placement.marked(list(called.args)):
                self._placement.mark(called.result)
        self._whole(segment, registers)

    def _whole(self, segment: Segment, registers: Registers) -> None:
        inputs = segment.values(registers)
        reason = segment.obstacle(inputs, segment.key(inputs)) if segment.recorded else ""
        if segment.recorded and reason is None:
            reason = self._record(segment, inputs, registers)
        if reason is not None:
            for register, step in segment.steps:
                self._step(register, step, registers, reason)
        elif self._placement.marked(list(inputs)):
            # Kernels leave their results where their inputs are.
            self._placement.mark([registers[k] for k in segment.outputs])

    def _record(self, segment: Segment, inputs: Any, registers: Registers) -> Reason | None:
        """Record a segment and compute it; return why not, if so."""
        recorder = segment.recorder(partial(_Recorder, self), self.execution.device)
        try:
            trace = Trace(segment, recorder, inputs, registers)
            little = trace.too_little()
            if little is not None:
                return little.reason
            structures = trace.structures()
            costly = trace.costs_more()
            if costly is not None:
                return costly.reason
            trace.finish(registers, structures)
        except (BdbQuit, MemoryError, OverrideError, PieceReturnedError):
            raise
        except UnrecordableError as reason:
            return reason.reason
        except Exception as error:  # noqa: BLE001  then the functions themselves raise it, or show their result
            return GraphBreak.RECORDING("recording failed", f"{type(error).__name__}: {error}")
        self._written(recorder)
        self._loose(segment, recorder, trace.local)
        for structure, k in zip(structures, segment.outputs, strict=True):
            for part, value in pairs(structure, registers[k]):
                origin = self.origin(recorder.held(part)) if isinstance(part, Register) else None
                if origin is not None:
                    self._note(value, origin)
        return None

    def _written(self, recorder: _Recorder) -> None:
        for step in recorder.steps:
            if isinstance(step, Launch):
                use = next(use for use in recorder.uses if use.launch is step)
                for number, output in enumerate(step.outputs):
                    made = recorder.registers()[output.register]
                    if not isinstance(step, PartLaunch):
                        self._note(made, FromKernel(use, number))
                    elif isinstance(found := self.origin(made), FromParts):
                        found.parts.append(FromKernel(use, number))
                    else:
                        self._note(made, FromParts([FromKernel(use, number)]))
            elif isinstance(step, Call):
                called = recorder.called(step)
                self._note(called.result, FromCall(called))

    def _loose(self, segment: Segment, recorder: _Recorder, local: Registers) -> None:
        """Note what functions have given that no kernel can hold, such as complex numbers."""
        for register, step in segment.steps:
            made = arrays_in(local[register])
            if any(self.origin(array) is None for array in made):
                known = [recorder.computed(value) for value in local]
                args, kwargs = substitute(step.args, known), substitute(step.kwargs, known)
                told = recorder.escape or "no kernel for this function"
                called = self._named(step.function, args, kwargs, self._keys[register], told)
                called.result = local[register]
                self._note(called.result, FromCall(called))

    def _step(self, register: int, step: ProgramStep, registers: Registers, reason: str) -> None:
        args, kwargs = substitute(step.args, registers), substitute(step.kwargs, registers)
        key = self._keys[register]
        registers[register] = self._call(step.function, args, kwargs, key, reason)

    # Calls --------------------------------------------------------------------------------

    def _plain(self, node: GraphNode, values: Mapping[Any, Any]) -> Any:
        def call(task: Task, args: list[Any], kwargs: dict[str, Any], key: Any) -> Any:
            return self._call(task.func, tuple(args), kwargs, key, "")

        return self._placement.bring(evaluate(node, values, call))

    def _call(self, function: Any, args: Any, kwargs: Any, key: Any, reason: str) -> Any:
        reason = reason or "nothing in its task gains from a kernel"
        args, kwargs = self._placement.bring(args), self._placement.bring(kwargs)
        called = self._named(function, args, kwargs, key, reason)
        called.direct = True
        called.result = self._placement.bring(self.execution.call(self._placement.sent(called)))
        self._note(called.result, FromCall(called))
        return called.result

    def _named(self, function: Any, args: Any, kwargs: Any, key: Any, reason: str) -> Called:
        """Return a call with the user's line, and why no kernel does it."""
        own = unfusible(function, args, kwargs)
        place = place_of_function(bare(function)) if own and own[0] else None
        place = place or place_of_layer(layer_of(key))
        told = own[1] if own else reason
        called = Called(function, args, kwargs, name_of(function), key, place, told)
        called.names = {id(array): self.name(array) for array in called.arrays()}
        return called

    def name(self, array: Any) -> str:
        """Return the user's name for an array that is an input, or dask's; empty for others."""
        layer = self.label(array)
        return name_of_layer(layer) if layer else ""

    def label(self, array: Any) -> str:
        """Return the layer of dask's that an array is a chunk of, if it is an input, or a piece.

        A piece that the user has no name for has that of what it was cut off.
        """
        origin = self.origin(array)
        if isinstance(origin, FromCall) and origin.called.reason is CUT:
            layer = layer_of(origin.called.key)
            return layer if variable_of_layer(layer) else self.label(origin.called.args[0])
        return layer_of(origin.key) if isinstance(origin, FromTask | Held) else ""


class _Recorder(TracingRecorder):
    """Records a segment of a run, whose execution says how kernels run."""

    def __init__(self, run: Run, device: Device, most: int) -> None:
        super().__init__(device, most)
        self._run = run
        self._arguments: dict[int, str] = {}
        self._sites: dict[int, RecordedAt] = {}
        self.uses: list[KernelUse] = []

    def leaf(self, array: Any, scalar: bool = False) -> Any:
        found = super().leaf(array, scalar)
        layer = self._run.label(array)
        if layer:
            self._arguments[found.register] = layer
        return found

    def launch(self, builder: KernelBuilder, targets: list[int],
               part: Part | None = None) -> Launch | Empty:  # fmt: skip
        step = super().launch(builder, targets, part)
        if isinstance(step, Launch):
            use = KernelUse(builder, step, self, self._run._labels, self._arguments)
            self.uses.append(use)
            step.kernel = self._run.execution.kernel(use)
        return step

    def call(self, function: Any, args: Any, kwargs: Any, copies: bool = False) -> Any:
        found = super().call(function, args, kwargs, copies)
        if self.steps:
            self._sites.setdefault(id(self.steps[-1]), self._origin())
        return found

    def held(self, register: Register) -> Any:
        """Return what a register holds."""
        return self.contents[register.number]

    def computed(self, value: Any) -> Any:
        """Return the array of a lazy chunk that has been computed; anything else as it is."""
        node = node_of(value) if isinstance(value, LazyChunk) and not value.waits else None
        register = self.done.get(id(node))
        return value if register is None else self.contents[register]

    def called(self, step: Call) -> Called:
        """Return a call of this recording with the very arrays that it read and gave."""
        args = _fetched(step.args, self.contents)
        kwargs = _fetched(step.kwargs, self.contents)
        values = [self.contents[k] for k in step.results]
        origin = self._sites[id(step)]
        key = self._run._keys.get(origin.step)
        place = place_of_site(origin.site) or place_of_layer(layer_of(key))
        name = name_of(step.function)
        reasons = [broken.reason for broken in self.broken if broken.operation == name]
        told = reasons[0] if reasons else "no kernel for this function"
        found = Called(step.function, args, kwargs, name, key, place, told)
        found.result = values[0] if step.single else values
        return found


def _fetched(structure: Any, registers: Registers) -> Any:
    if isinstance(structure, Register):
        return registers[structure.number]
    if type(structure) in (list, tuple):
        return type(structure)(_fetched(item, registers) for item in structure)
    if type(structure) is dict:
        return {name: _fetched(item, registers) for name, item in structure.items()}
    return structure
