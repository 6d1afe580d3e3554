"""Tasks gone through without computing: kernels are generated, and zeros stand in for chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpusched.adapters.tasks import DataNode, GraphNode, Task
from gpusched.backends.devices import HOST
from gpusched.emit.kernel import Kernel
from gpusched.graph.batch import calls_in
from gpusched.graph.partials import slow_part
from gpusched.graph.program import Program
from gpusched.graph.segment import Segment
from gpusched.plan.expression import UnrecordableError
from gpusched.record.record import Recorder
from gpusched.store.handles import CompiledKernel

LARGEST = 1 << 30
"""Bytes of a chunk that is stood in for."""


class UnknownResultError(Exception):
    """Nothing is known of a task's result.

    Parameters
    ----------
    what
        What stopped it: a function's name, mostly.
    reason
        Why.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


class Rehearsal:
    """Goes through tasks with arrays that hold zeros.

    Kernels are generated, and neither compiled nor launched. Functions that are not known to be
    quick and free of side effects are not called.

    Notes
    -----
    Belongs to one thread.
    """

    refusal = "is not called"
    """What is said of a function that is not."""

    def __init__(self) -> None:
        self.device = replace(HOST, compile=self.compiled, empty=np.zeros)

    def compiled(self, kernel: Kernel) -> CompiledKernel:
        """Return something instead of a kernel, which does nothing when called."""
        return CompiledKernel(kernel, "", "", kernel.name, lambda *operands: None)

    def recorder(self) -> Recorder:
        """Return what records a segment."""
        return Recorder(self.device)

    def result(self, node: GraphNode, values: Mapping[Any, Any]) -> Any:
        """Return what stands in for the result of a task.

        Parameters
        ----------
        node
            The task, rewritten.
        values
            What stands in for its inputs, by key.

        Raises
        ------
        UnknownResultError
            If that is not known.
        """
        if not isinstance(node, Task) or not isinstance(node.func, Program):
            for function, *_ in calls_in(node):
                self.check_function(function)
            return small(node(values))
        program = node.func
        inputs = [arg() if isinstance(arg, DataNode) else values[arg.key] for arg in node.args]
        registers = [*inputs, *[None] * len(program.steps)]
        for segment in program.segments:
            self.run(segment, registers)
        return small(registers[-1])

    def run(self, segment: Segment, registers: list[Any]) -> None:
        """Go through one segment."""
        functions = [step.function for _, step in segment.steps]
        for function, (_, step) in zip(functions, segment.steps, strict=True):
            if not segment.recorded or not step.replayed:
                self.check_function(function)
        inputs = tuple(registers[k] for k in segment.inputs)
        name = getattr(functions[-1], "__name__", type(functions[-1]).__name__)
        try:
            with np.errstate(all="ignore"):
                if (
                    not segment.recorded
                    or segment.obstacle(inputs, segment.key(inputs)) is not None
                ):
                    return segment.call(registers)
            recorder = self.recorder()
            local, _ = segment.trace(recorder, inputs, registers)
            if segment.too_little(recorder) is None:
                segment.finish(recorder, local, registers)
            else:
                with np.errstate(all="ignore"):
                    segment.call(registers)
        except (Exception, UnrecordableError) as error:  # whatever a function makes of zeros
            raise UnknownResultError(name, f"{type(error).__name__}: {error}"[:200]) from error

    def check_function(self, function: Any) -> None:
        """Raise `UnknownResultError` for a function that is not known to be quick."""
        name = slow_part(function)
        if name is not None:
            raise UnknownResultError(name, self.refusal)


def small(value: Any) -> Any:
    """Return a value; `UnknownResultError` for an array too large to be stood in for."""
    if isinstance(value, np.ndarray) and value.nbytes > LARGEST:
        raise UnknownResultError("chunks of more than 1 GiB", "too large to be stood in for")
    return value
