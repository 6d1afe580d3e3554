"""Neighbouring tasks of tiny chunks -> one task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from dask.utils import methodcaller

from gpusched.adapters.tasks import Alias, DataNode, Task, TaskRef
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.functions.libraries import TIMED, is_in, is_numpys
from gpusched.graph.functions.partials import bare, callables, name_of, parts
from gpusched.graph.passes.cutting import cut_off
from gpusched.graph.passes.grouping import Group, Grouping, Limits
from gpusched.graph.passes.items import taking
from gpusched.graph.passes.joins import joined
from gpusched.graph.passes.table import Table, key_of
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.rewrite import translated
from gpusched.graph.programs.templates import Templates
from gpusched.graph.running.batch import Batch
from gpusched.graph.subgraph import depth_first, references, resolved
from gpusched.plan.plan import Register
from gpusched.record.catalogue import has
from gpusched.record.steps import ProgramStep

ALL = GraphBreak.RESULT("all chunks become one")
LARGE = GraphBreak.LARGE("chunks that are large enough")
NEIGHBOURS = GraphBreak.FEW_TASKS("too few tasks side by side (gpusched.batching.least)")
SENT = GraphBreak.KEPT("results that would be sent to many which need little of them")

MOST = 1024
"""Chunks that a task of a batch takes at most."""


def batched(graph: dict[Any, Any], table: Table, limits: Limits) -> dict[Any, Any]:
    """Return a graph with neighbouring tiny tasks in batches.

    Parameters
    ----------
    graph
        Rewritten.
    table
        The same, before it was; why tasks are in no batch is noted there.
    limits
        What a batch may be.
    """
    why = ""
    if limits.tasks < 2:
        why = f"gpusched.batching.tasks is {limits.tasks}"
    elif len(graph) <= limits.least:
        why = f"a graph of no more than {limits.least} tasks (gpusched.batching.least)"
    if why:
        count = sum(isinstance(node, Task) for node in graph.values())
        table.note("batch", GraphBreak.FEW_TASKS(why), count)
        return graph
    return _Batching(graph, table, limits).run()


class _Batching:
    def __init__(self, graph: dict[Any, Any], table: Table, limits: Limits) -> None:
        self._graph = graph
        self._table = table
        self._slow: dict[Program, str] = {}
        """What programs call that may take any time, by its name; empty for nothing."""
        self._unrecorded = Templates(
            lambda node: translated(node, table.functions, recorded=False)[0], table.forms
        )
        self._limits = limits
        self._operands: dict[Any, list[Any]] = {}
        self._data: set[Any] = set()
        self._sizes: dict[Any, float] = {}
        self._pieces: dict[Any, dict[Any, int]] = {}
        """By task: the bytes of the pieces that it cuts off large chunks, by their keys."""
        self._tiny: set[Any] = set()
        self._programs: dict[Any, Program] = {}
        self._result: dict[Any, Any] = {}
        self._places: dict[Any, tuple[Any, int]] = {}
        """By a chunk's key, if a batch has several results: the batch's key, and which it is."""
        self._pinned = set(table.wanted)
        for key in table.wanted:
            # The task behind another name for it is as much asked for as that.
            self._pinned.add(self._resolved(key))

    def run(self) -> dict[Any, Any]:
        self._order()
        for key in self._operands:
            self._judge(key)
        if not self._tiny:
            return self._graph
        grouping = Grouping(self._operands, self._sizes, self._pieces, self._tiny, self._data,
                            self._limits)  # fmt: skip
        groups = grouping.run()
        outside = {
            other
            for group in groups
            for key in group.members
            for other in self._operands[key]
            if grouping.of[other] is not group
        }
        for group in groups:
            if len(group.members) > 1:
                self._emit_batch(group, outside)
            else:
                (key,) = group.members
                if key in self._tiny:
                    self._table.note("batch", NEIGHBOURS if group.room else SENT)
                self._emit_single(key)
        for key in self._table.wanted:
            self._keep_alias(key)
        return self._result

    # What there is ------------------------------------------------------------------------

    def _resolved(self, key: Any) -> Any:
        """Return the key of the task behind a key that may be another name for it."""
        return resolved(self._graph, key)

    def _order(self) -> None:
        """Note what each task depends on; depth first, in the order of arguments."""
        needed: dict[Any, list[Any]] = {}

        def operands(key: Any) -> list[Any]:
            node = self._graph.get(key)
            found: list[Any] = []
            if node is None or type(node) is DataNode:
                self._data.add(key)  # Without a node it is kept on a cluster.
            elif node.dependencies:
                found = list(dict.fromkeys(map(self._resolved, references(node))))
            needed[key] = found
            return found

        order = depth_first(map(self._resolved, self._table.wanted), operands)
        self._operands = {key: needed[key] for key in order}

    def _judge(self, key: Any) -> None:
        """Note a task's size, and whether it is tiny."""
        node = self._table.tasks.get(key)
        nbytes = self._table.nbytes(key)
        if nbytes is not None:
            self._sizes[key] = nbytes
        if key in self._data:
            return
        reason = self._reason(key, node, nbytes)
        if reason is not None:
            self._table.note("batch", reason)
        else:
            self._tiny.add(key)

    def _reason(self, key: Any, node: Any, nbytes: float | None) -> Reason | None:
        if key in self._pinned:
            return ALL if joined(node) else GraphBreak.RESULT("asked for by name")
        if type(node) is not Task:
            return GraphBreak.FORM(f"a {type(node).__name__}")
        if len(self._operands[key]) > MOST:
            return GraphBreak.FORM("tasks of very many chunks")
        read = {other: self._read(key, node, other) for other in self._operands[key]}
        largest = max(read.values(), default=0)
        if largest == math.inf:
            unknown = [other for other, size in read.items() if size == math.inf]
            return self._table.unknown("chunks", unknown)
        if max(nbytes or 0, largest) > self._limits.chunk:
            return LARGE
        task = self._graph[key]
        if type(task.func) is not Program:
            task = self._unrecorded.rewrite(task)
        if type(task.func) is not Program:
            return GraphBreak.FORM("tasks of a form of their own")
        called = self._slow_call(task.func)
        if called:
            return GraphBreak.ANY_TIME(f"{called} may take any time")
        if nbytes is None and _moves(task):
            nbytes = sum(read.values())
        if nbytes is None:
            return self._table.unknown("chunks", [key])
        if nbytes > self._limits.chunk:
            return LARGE
        self._sizes[key] = nbytes
        if self._table.sizes.is_annotated(node):
            return GraphBreak.ANNOTATED("annotated")
        self._graph[key] = task
        return None

    def _slow_call(self, program: Program) -> str:
        """Return the name of what a program calls that may take any time; empty for nothing.

        That is what reads chunks from somewhere, and a function of the user's own that is not shown
        to call only what kernels compute: two of them in a batch would take turns.
        """
        found = self._slow.get(program)
        if found is None:
            calls = (each for step in program.steps for each in self._unknown(step))
            slow = (name_of(function) for function in calls if not _is_cheap(function))
            found = self._slow[program] = next(slow, "")
        return found

    def _unknown(self, step: ProgramStep) -> list[Any]:
        """Return the functions that a call calls, unless kernels compute all that they do."""
        traits = self._table.functions.traits(step.function, step.args, step.kwargs)
        shown = traits.replayed and not traits.between
        if shown and not has(bare(step.function), "reads"):
            return []
        return [step.function, *callables((step.args, step.kwargs))]

    def _read(self, key: Any, node: Task, other: Any) -> float:
        """Return the bytes that a task reads of a chunk at most; infinity if that is not known."""
        nbytes = self._sizes.get(other, math.inf)
        if nbytes <= self._limits.chunk:
            return nbytes
        told = self._table.sizes.lengths(self._table.tasks, other)
        piece = None if told is None else cut_off(node, other, *told)
        if piece is None:
            return nbytes
        self._pieces.setdefault(key, {})[other] = piece
        return piece

    # What becomes of it --------------------------------------------------------------------

    def _emit_batch(self, group: Group, outside: set[Any]) -> None:
        outputs = [key for key in group.members if key in outside]
        keys = tuple(group.members)
        inputs: dict[Any, int] = {}
        literals: list[Any] = []
        numbers = {key: number for number, key in enumerate(keys)}
        calls = tuple(
            [
                (
                    task.func,
                    tuple([self._argument(a, numbers, inputs, literals) for a in task.args]),
                )
                for task in map(self._graph.__getitem__, keys)
            ]
        )
        program = self._program(calls, tuple([numbers[key] for key in outputs]), len(inputs))
        name = outputs[0] if len(outputs) == 1 else key_of("batched", outputs[0], outputs)[0]
        if len(outputs) > 1:
            for index, key in enumerate(outputs):
                self._places[key] = name, index
        producer = any(self._graph[key].data_producer for key in keys)
        self._result[name] = Task(name, program, DataNode(None, keys),
                                  DataNode(None, tuple(literals)), *map(TaskRef, inputs),
                                  _data_producer=producer)  # fmt: skip

    def _argument(self, value: Any, numbers: Mapping[Any, int], inputs: dict[Any, int],
                  literals: list[Any]) -> tuple[Any, ...]:  # fmt: skip
        """Return what stands for an argument: a register, and which item of it if not the whole.

        After the results of the steps come the literals, and then the inputs.
        """
        if type(value) is DataNode:
            literals.append(value.value)
            return len(numbers), len(literals) - 1
        key = self._resolved(value.key)
        if key in numbers:
            return (numbers[key],)
        source, *item = self._places.get(key, (key,))
        return len(numbers) + inputs.setdefault(source, len(inputs) + 1), *item

    def _program(self, calls: tuple[Any, ...], outputs: tuple[int, ...], inputs: int) -> Program:
        """Return the program of batches of one form, which workers are given once."""
        form = calls, outputs, inputs
        found = self._programs.get(form)
        if found is None:
            steps = tuple(
                [ProgramStep(f, tuple([Register(*a) for a in args])) for f, args in calls]
            )
            arguments = tuple(Register(k) for k in range(inputs + 2))
            step = ProgramStep(Batch(steps, outputs), arguments)
            found = Program((step,), inputs + 2, self._table.functions.overrides)
            self._programs[form] = found
        return found

    def _emit_single(self, key: Any) -> None:
        node = self._graph.get(key)
        if node is None:
            return
        places = {}
        for needed in node.dependencies:
            place = self._places.get(self._resolved(needed))
            if place is None:
                self._keep_alias(needed)
            else:
                places[needed] = place
        self._result[key] = taking(node, places) if places else node

    def _keep_alias(self, key: Any) -> None:
        """Keep the other names of a task that somebody still uses."""
        node = self._graph.get(key)
        while type(node) is Alias and key not in self._result:
            self._result[key] = node
            key = node.target
            node = self._graph.get(key)


def _is_cheap(function: Any) -> bool:
    return not has(bare(function), "reads") and all(map(_of_library, parts(function)))


def _of_library(function: Any) -> bool:
    """Return whether a function is one of NumPy's, Python's or dask's own of arrays."""
    if isinstance(function, methodcaller):
        return True  # a method of a chunk
    if isinstance(function, np.ufunc):
        return is_numpys(function)
    # What has no name is an object such as `numpy.vectorize` makes.
    return hasattr(function, "__name__") and is_in(function, TIMED)


def _moves(task: Task) -> bool:
    """Return whether a program's task has a result of no more elements than what it takes."""
    if any(type(a) is DataNode and isinstance(a.value, list | np.ndarray) for a in task.args):
        return False  # an index that may name an element several times
    program = task.func
    assert isinstance(program, Program)
    return all(has(bare(step.function), "keeps") for step in program.steps)
