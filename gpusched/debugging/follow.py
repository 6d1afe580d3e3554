"""Follows an element back: through kernels and functions of its task, and into other tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusched.adapters.tasks import DataNode
from gpusched.debugging.check import nonfinite
from gpusched.debugging.graph import Graph
from gpusched.debugging.origins import (
    Called,
    FromCall,
    FromKernel,
    FromParts,
    FromTask,
    Held,
    broadcast,
    is_elementwise,
    moves,
    read_at,
    same_part,
    shown_elements,
)
from gpusched.debugging.readable import ReadableKernel, needed
from gpusched.debugging.replay import Execution, Run
from gpusched.debugging.sources import follows, told_of
from gpusched.debugging.traced_values import Index, Traced, Where, is_finite
from gpusched.emit.operations import DEFINED
from gpusched.inspection.source import place_of_node
from gpusched.inspection.standins import arrays_in
from gpusched.inspection.variant import KernelUse
from gpusched.plan.expression import Node, Reduce
from gpusched.quantities import count


@dataclass(frozen=True)
class Visit:
    """A kernel, or a function that none does, on the way to an element."""

    made: FromKernel | Called
    element: Index


class Follower:
    """Collects the values that lead to elements, each before what is made of it.

    Parameters
    ----------
    graph
        Of the array.
    depth
        How many tasks are gone back from the first one.
    into_reductions
        Whether what is not finite is followed into a reduction's arguments.
    execution
        How the kernels and functions of tasks are run.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, graph: Graph, depth: int, into_reductions: bool,
                 execution: Execution | None = None) -> None:  # fmt: skip
        self.graph = graph
        self.steps: list[Traced] = []
        self.visits: list[Visit] = []
        self._depth = depth
        self._into = into_reductions
        self._execution = execution
        self._seen: dict[tuple[int, Index], Where] = {}
        self._runs: dict[Any, Run] = {}
        self._kernels: dict[int, ReadableKernel] = {}

    def run_of(self, key: Any) -> Run:
        """Return the task behind a key, gone through with its real inputs."""
        if key not in self._runs:
            node = self.graph.node(key)
            inputs = self.graph.inputs(node)
            self._runs[key] = Run(node, inputs, self.graph.functions, self.graph.placement,
                                  self._execution)  # fmt: skip
        return self._runs[key]

    def kernel(self, use: KernelUse) -> ReadableKernel:
        """Return a launch as its source is shown."""
        if id(use) not in self._kernels:
            self._kernels[id(use)] = ReadableKernel(use)
        return self._kernels[id(use)]

    def value_of(self, key: Any, local: Index) -> Any:
        """Follow an element of a chunk that a task makes, and return its value."""
        result = self.run_of(key).result
        where = self.element(self.run_of(key), result, local, self.graph.where(key, local),
                             self._depth)  # fmt: skip
        value = result[local]
        if not self.steps:
            self._input("", where, value)
        return value

    def element(self, run: Run, array: Any, index: Index, where: Where | None, depth: int) -> Where:
        """Follow an element of an array in a task; return what it is.

        Parameters
        ----------
        run
            The task.
        array
            An array in it.
        index
            Position in the array.
        where
            The element that is asked for, if this is it.
        depth
            How many tasks may be gone back.
        """
        seen = self._seen.get((id(array), index))
        if seen is None:
            seen = self._followed(run, array, index, where, depth)
            self._seen[id(array), index] = seen
        return seen

    def _followed(self, run: Run, array: Any, index: Index, where: Where | None,
                  depth: int) -> Where:  # fmt: skip
        origin = run.origin(array)
        if isinstance(origin, FromTask):
            return self._across(origin.key, array, index, depth)
        if isinstance(origin, Held):
            return self.graph.where(origin.key, index, "held by the graph")
        if isinstance(origin, FromKernel):
            return self._kernel(run, origin, index, where, depth)
        if isinstance(origin, FromParts):
            return self._kernel(run, *origin.at(index, array.shape), where, depth)
        if isinstance(origin, FromCall):
            return self._call(run, origin.called, array, index, where, depth)
        return where or Where("data", None, note="held by the graph")

    def _across(self, key: Any, array: Any, index: Index, depth: int) -> Where:
        """Go on in the task that has given an array."""
        node = self.graph.node(key)
        found = self.graph.where(key, index)
        if isinstance(node, DataNode):
            return replace(found, note="held by the graph")
        sought = self._into and not is_finite(array[index])
        if not sought and not follows(node, self.graph.functions):
            return replace(found, note=told_of(node))
        if not depth:
            return replace(found, note=f"{told_of(node)}, not followed further")
        run = self.run_of(key)
        result = same_part(self.graph.fetch([key])[key], array, run.result)
        if np.shape(result) != np.shape(array):
            return replace(found, note=f"part of what {told_of(node)}")
        inner = self.element(run, result, index, found, depth - 1)
        known = inner.index is not None and found.index is None
        return inner if inner.note or known else found

    # Kernels ------------------------------------------------------------------------------

    def _kernel(self, run: Run, made: FromKernel, index: Index, where: Where | None,
                depth: int) -> Where:  # fmt: skip
        node = made.use.builder.group.nodes[made.number]
        if isinstance(node, Reduce):
            return self._reduction(run, made, node, index, where, depth)
        if self.kernel(made.use).edited:
            return self._edited(made, index, where)
        found = self.statements(run, made.use, node, index, where, depth)
        self.visits.append(Visit(made, index))
        return found

    def _edited(self, made: FromKernel, index: Index, where: Where | None) -> Where:
        """Add the value of a user's version of a kernel, which has no statements to go through."""
        use = made.use
        node = use.builder.group.nodes[made.number]
        original = use.kernel.original or use.kernel
        array = made.array
        own = where or Where(original.name, None)
        self.steps.append(
            Traced("call", "", f"your version of {original.name}", original.name, str(node.dtype),
                 array[index], place_of_node(use, node), own)
        )  # fmt: skip
        self.visits.append(Visit(made, index))
        return own

    def statements(self, run: Run, use: KernelUse, node: Node, element: Index,
                   where: Where | None, depth: int) -> Where:  # fmt: skip
        """Add the values that lead to a node at an element of a kernel's iteration space."""
        kernel = self.kernel(use)
        numbers = sorted(needed(use, node))
        read = variables_read(kernel, numbers, node)
        reached = []
        inputs = zip(use.kernel.values, kernel.arrays, strict=True)
        for name, (input_, array) in zip(kernel.parameters, inputs, strict=False):
            if name not in read or input_ in use.builder.tables:
                continue  # No single element of a table is what the result is made of.
            at = broadcast(use.builder.place(input_, element), array.shape)
            whole = array.shape == use.builder.group.shape
            one = self.element(run, array, at, None, depth)
            self._input(name, one, array[at])
            reached += [one] if whole else []
        own = where or (replace(reached[0], note="", place=None) if reached else None)
        constants = self._constants(run, kernel, read, depth)
        values = kernel.values(element)
        name = ""
        for number in numbers:
            name, expression = kernel.statements[number]
            each = use.builder.order[number]
            shown = with_values(expression, constants)
            self.steps.append(
                Traced("operation", name, shown, short_name(each.operation), str(each.dtype),
                     each.dtype.type(values[number]), place_of_node(use, each), own)
            )  # fmt: skip
        return where or (replace(own, array=name or own.array) if own else Where(name, None))

    def _input(self, name: str, where: Where, value: Any) -> None:
        self.steps.append(
            Traced("input", name, str(where), "", str(np.asarray(value).dtype), value, where.place,
                 where, where.note)
        )  # fmt: skip

    def _constants(self, run: Run, kernel: ReadableKernel, read: set[str],
                   depth: int) -> dict[str, str]:  # fmt: skip
        """Return the user's constants as text; those that are computed are inputs."""
        names = kernel.parameters[len(kernel.arrays) :]
        found = {}
        for name, value in zip(names, kernel.use.launch.constants, strict=False):
            scalar = run.scalar(value)
            if scalar is None:
                found[name] = str(value)
            elif name in read:
                self._input(name, self.element(run, scalar, (), None, depth), scalar)
        return found

    def _reduction(self, run: Run, made: FromKernel, node: Reduce, index: Index,
                   where: Where | None, depth: int) -> Where:  # fmt: skip
        kernel = self.kernel(made.use)
        array = made.array
        part = kernel.region(index)
        argument = made.use.recorder.array(node.argument)[part]
        note = ""
        if not is_finite(array[index]) and self._into and not kernel.edited:
            bad = np.argwhere(~np.isfinite(argument))
            note = "all that it joins is finite"
            if len(bad):
                element = tuple(int(k) + (s.start or 0) for k, s in zip(bad[0], part, strict=True))
                self.statements(run, made.use, node.argument, element, None, depth)
                note = f"not finite: {len(bad):,} of {argument.size:,}"
        told = f"{short_name(node.combine)} over {argument.size:,} elements"
        place = place_of_node(made.use, node)
        self.steps.append(
            Traced("reduction", "", told, short_name(node.combine), str(node.dtype), array[index],
                 place, where, note)
        )  # fmt: skip
        self.visits.append(Visit(made, index))
        return where or Where(told, None, place=place)

    # Functions that no kernel does --------------------------------------------------------

    def _call(self, run: Run, called: Called, array: Any, index: Index, where: Where | None,
              depth: int) -> Where:  # fmt: skip
        if moves(called):
            source = shown_elements(called, array, index)
            if source is None:
                return where or Where(called.name, None, note=f"filled in by {called.name}")
            return self.element(run, *source, where, depth)
        if not called.arrays():
            found = self.graph.where(called.key, index, f"comes out of {called.name}")
            at = read_at(called, index)
            if at is not None:
                kind = type(called.args[0]).__name__
                found = replace(found, index=at, note=f"read from a source of type {kind}")
            return replace(where or found, note=found.note)
        shown = count(len(called.arrays()), "array")
        if is_elementwise(called.function):
            shown = ", ".join(self._argument(run, a, index, depth) for a in called.args)
        elif self._into and not is_finite(array[index]):
            self._culprit(run, called, depth)
        self.visits.append(Visit(called, index))
        own = where or self.graph.where(called.key, index)
        value = array[index]
        dtype = str(np.asarray(value).dtype)
        self.steps.append(
            Traced("call", "", f"{called.name}({shown})", called.name, dtype, value,
                 called.place, own, f"not fused: {called.reason}")
        )  # fmt: skip
        return own

    def _culprit(self, run: Run, called: Called, depth: int) -> None:
        """Follow the first element that is not finite among what a function was given."""
        bad = nonfinite(called.arrays())
        if bad is not None:
            array = called.arrays()[bad.array]
            where = self.element(run, array, bad.local, None, depth)
            self._input("", where, array[bad.local])

    def _argument(self, run: Run, value: Any, index: Index, depth: int) -> str:
        """Return an argument of a function of elements as text; add the element that is read."""
        if not arrays_in([value]):
            return repr(value)
        at = broadcast(index, np.shape(value))
        where = self.element(run, value, at, None, depth)
        self._input("", where, value[at])
        return str(where)


_WORD = re.compile(r"\b[^\W\d]\w*")


def variables_read(kernel: ReadableKernel, numbers: list[int], node: Node) -> set[str]:
    """Return the variables that some statements, or a node that is an input, read."""
    found = {word for k in numbers for word in _WORD.findall(kernel.statements[k][1])}
    number = kernel.use.builder.names.get(id(node))
    if isinstance(number, int) and number < len(kernel.parameters):
        found.add(kernel.parameters[number])
    return found


def with_values(expression: str, constants: dict[str, str]) -> str:
    """Return an expression with numbers for a kernel's constants, and short names of functions.

    Examples
    --------
    >>> from gpusched.debugging.follow import with_values
    >>> with_values("a * s0 + s1", {"s0": "2.5"})
    'a * 2.5 + s1'
    """
    return _WORD.sub(lambda match: constants.get(match[0], short_name(match[0])), expression)


def short_name(operation: str) -> str:
    """Return an operation's name; that of a user's function without the digest."""
    return operation.rpartition("_")[0] if operation in DEFINED else operation
