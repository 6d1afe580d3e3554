"""dask tasks -> programs."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from functools import partial
from operator import is_not
from types import FunctionType
from typing import Any
from uuid import uuid4

from numpy.lib.stride_tricks import sliding_window_view

from gpusched import events
from gpusched.adapters.arrays import pass_located
from gpusched.adapters.tasks import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    NestedContainer,
    Task,
    TaskRef,
    execute_subgraph,
    is_container,
)
from gpusched.breaks import GraphBreak
from gpusched.graph import subgraph
from gpusched.graph.functions.known import (
    enforced,
    exact_for,
    last_for,
    located,
    of_ndim,
)
from gpusched.graph.functions.lonejoins import copied_by_joining, of_one, only_part, own_part
from gpusched.graph.functions.partials import applied, name_of
from gpusched.graph.programs.functiontraits import (
    DTYPE,
    Functions,
    called,
    enforces,
    passes_on,
)
from gpusched.graph.programs.program import Program, keep, lasts
from gpusched.graph.programs.showing import show
from gpusched.graph.programs.templates import Forms, Templates, frozen, is_constant
from gpusched.graph.running.decisions import Remaining
from gpusched.graph.running.inputs import describe
from gpusched.graph.running.remembered import Content
from gpusched.plan.plan import Register, changed, used_registers
from gpusched.record.catalogue import has
from gpusched.record.recorded import StandIn, sealed
from gpusched.record.steps import ProgramStep, Taken
from gpusched.store.statistics import updating

_programs: weakref.WeakValueDictionary[Any, Program] = weakref.WeakValueDictionary()

CONFLICT = GraphBreak.CONFLICT("may change an array that another call of its task reads")
"""Why a task is left as it is."""


class Untranslatable(Exception):
    """A task of a form that is left as it is."""


def rewrite(
    graph: dict[Any, Any], functions: Functions, wanted: Iterable[Any] = (),
    forms: Forms | None = None,
) -> dict[Any, Any]:  # fmt: skip
    """Return `graph` with a program in every task that computes with known functions.

    Parameters
    ----------
    graph
        dask's nodes by key.
    functions
        What is known of functions.
    wanted
        Keys of the results.
    forms
        Of the graph's tasks.
    """

    def labelled(node: Any) -> Any:
        task, keys = rewrite_labelled(node, functions)
        if keys:
            events.origin(task.key, task.func.inputs, tuple(keys))
        return task

    forms = Forms() if forms is None else forms
    templates = Templates(
        lambda node: translated(node, functions)[0],
        forms,
        functions.is_taken,
    )
    # What each call of a program was is noted of each task.
    rewritten = labelled if events.active else templates.rewrite
    found = {key: rewritten(node) if type(node) is Task else node for key, node in graph.items()}
    show(found, wanted, graph, forms)
    _count(found.values())
    return found


def _count(nodes: Iterable[Any]) -> None:
    """Let each program know how many tasks of it there are."""
    counted = Counter(
        [node.func for node in nodes if type(node) is Task and type(node.func) is Program]
    )
    graph = uuid4().hex[:8]
    for program, tasks in counted.items():
        program.remaining.learn(Remaining(tasks, graph))


def rewrite_labelled(node: Any, functions: Functions) -> tuple[Any, list[Any]]:
    """Return a task as a program, and the key of the task that each step was.

    It is the task itself if nothing in it can be fused or is a graph break.
    """
    if type(node) is not Task or not functions.is_taken(node):
        return node, []
    return translated(node, functions)


def translated(node: Task, functions: Functions, recorded: bool = True) -> tuple[Any, list[Any]]:
    """Return a task as a program, be it worth it or not; itself if it has no form of one.

    Parameters
    ----------
    node
        The task.
    functions
        What is known of functions.
    recorded
        Whether functions are given lazy chunks where they take them, or just called.
    """
    translation = _Translation(functions, recorded)
    try:
        result = translation.task(node, {})
    except Untranslatable as form:
        if recorded:
            with updating() as counters:
                counters.breaks[name_of(called(node)[0]), GraphBreak.FORM(str(form))] += 1
        return node, []
    if not isinstance(result, Register):
        return node, []
    again = translation.rewritten_before()
    if again is not None:
        return Task(node.key, *again, _data_producer=node.data_producer), []
    program = translation.program()
    if program.conflict is not None:
        # Then the order of calls matters, or what is a view: both are as dask has them.
        with updating() as counters:
            counters.breaks[name_of(program.conflict.function), CONFLICT] += 1
        return node, []
    task = Task(node.key, program, *translation.inputs, _data_producer=node.data_producer)
    return task, translation.keys


class _Translation:
    """Collects the steps and inputs of one task.

    Values that differ from chunk to chunk (references, slices, arrays) become inputs, so that all
    chunks of a layer share one program; numbers and names are part of it.
    """

    def __init__(self, functions: Functions, recorded: bool = True) -> None:
        self.functions = functions
        self.recorded = recorded
        self.inputs: list[Any] = []
        self.steps: list[ProgramStep] = []
        self.shape: list[Any] = []
        self.keys: list[Any] = []
        self._references: dict[Any, Register] = {}
        self._obscure: set[int] = set()
        """Inputs that cannot be compared, so that no plan could depend on them."""
        self._partials: dict[int, partial[Any]] = {}
        """Partial applications that were taken apart, by their ids."""
        self._has_windows = False
        """Whether windows are among the steps so far: thousands of steps may ask."""
        self._little: list[bool] = []
        """By step, whether it calls a function of the user's that holds no arrays."""
        self._guard = -1
        """The input that is their guard: one for the task, as each would take time."""

    def program(self) -> Program:
        """Return the program, the same one for tasks that differ only in their inputs."""
        if self._partials:
            self.inputs[self._guard] = self.functions.guard(tuple(self._partials.values()))
        count = len(self.inputs)
        key = (count, self.recorded, tuple(self.shape), *self.functions.key)
        found = _programs.get(key)
        if found is None:
            # The first step's result, -1 so far, comes after the inputs.
            names = {k: Register(k if k >= 0 else count - k - 1)
                     for k in range(-len(self.steps), count)}  # fmt: skip
            steps = tuple(step.renamed(names) for step in self.steps)
            found = _programs[key] = Program(steps, count, self.functions.overrides)
            # Else what it holds is not to be kept alive.
            found.lasts = all(
                little or lasts((step.function, step.args, step.kwargs))
                for step, little in zip(steps, self._little, strict=True)
            )
            if found.lasts and any(self._little):
                found.identify(self._content(steps))
        if found.lasts:
            keep(found)
        return found

    def _content(self, steps: tuple[ProgramStep, ...]) -> Content:
        """Return what the program does, without those functions of the user's."""
        shape = tuple([
            (None, *shape[1:4], *map(frozen, _given(step))) if little else shape
            for shape, step, little in zip(self.shape, steps, self._little, strict=True)
        ])  # fmt: skip
        held = [step for step, little in zip(steps, self._little, strict=True) if not little]
        return Content((len(self.inputs), self.recorded, shape, *self.functions.key), held)

    def rewritten_before(self) -> list[Any] | None:
        """Return a program and its inputs if there is nothing else; None if there is."""
        if len(self.steps) != 1 or type(self.steps[0].function) is not Program:
            return None
        program, args = self.steps[0].function, self.steps[0].args
        given = [self.inputs[a.number] if type(a) is Register else DataNode(None, a) for a in args]
        return [program, *given]

    def task(self, task: Task, known_keys: dict[Any, Any]) -> Any:
        """Return where a task's result is."""
        if task.func is execute_subgraph:
            return subgraph.walk(task, known_keys, self.argument)
        if (only := copied_by_joining(task)) is not task:
            return self.step(task.key, own_part, (self.argument(only, known_keys),), {})
        parts = tuple(map(copied_by_joining, task.args))
        if any(map(is_not, parts, task.args)) and not isinstance(exact_for(task.func), StandIn):
            parts = task.args
        # A stand-in neither changes what it is given nor returns it: it needs no copy.
        args = tuple(self.argument(a, known_keys) for a in parts)
        if task.func is pass_located:
            found = located(tuple(map(self.plain, args)), task.kwargs)
            if found is not None:
                args = tuple(a if type(a) is Register else self.literal(a) for a in found.args)
                kwargs = {name: self.literal(value) for name, value in found.kwargs.items()}
                return self.step(task.key, found.function, args, kwargs)
        function, given = called(task)
        kwargs = {name: self.argument(a, known_keys) for name, a in given.items()}
        wanted = enforces(task)
        if wanted is not None:
            result = self.step(task.key, function, args, kwargs)
            check = enforced if wanted == DTYPE else of_ndim
            return self.step(task.key, check, (result, task.kwargs[wanted[1]], function), {})
        only = None if kwargs else of_one(task.func, args)
        if only is not None:
            reduced, part, axes = only
            whole = self.step(task.key, only_part, (part, axes), {})
            return self.step(task.key, reduced, (whole,), {})
        return self.step(task.key, function, args, kwargs)

    def step(
        self, key: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Register:
        """Add a call, and return where its result is.

        What a partial application holds is given as other arguments are: arrays are inputs.
        """
        if args and type(args[0]) is Register and args[0].number < 0:
            maker = self.steps[-args[0].number - 1].function
            function = maker.user(function) if isinstance(maker, StandIn) else function
        taken, given = None, function
        function, held, named = applied(exact_for(function), (), {})
        function = last_for(function, self.maker(args))
        if type(given) is partial and type(function) is not partial:
            taken = Taken(*self.guard(given), len(held), frozenset(kwargs))
        args = (*map(self.literal, held), *args)
        kwargs = {**{name: self.literal(value) for name, value in named.items()}, **kwargs}
        if isinstance(function, StandIn):
            for name, call in function.taken(args).items():
                kwargs[name] = self.step(key, *call, {})
            args = tuple(self.sealed(key, a) if k in function.sealed else a
                         for k, a in enumerate(args))  # fmt: skip
        traits = self.functions.traits(function, args, kwargs)
        recorded = self.recorded and traits.recorded and not passes_on(function, args)
        compared = self._obscure.isdisjoint(used_registers((args, kwargs)))
        recorded &= compared
        replayed = traits.replayed and compared
        self.steps.append(ProgramStep(function, args, kwargs, recorded, replayed, taken))
        self._has_windows |= function is sliding_window_view
        self._little.append(traits.little)
        self.keys.append(key)
        self.shape.append(
            (traits.identity, recorded, replayed, taken, frozen(args), frozen(kwargs))
        )
        result = Register(-len(self.steps))
        finish = function.finish if isinstance(function, StandIn) else None
        if finish is None:
            return result
        return self.step(key, finish, (result, *(args[k] for k in function.sealed)), {})

    def maker(self, args: tuple[Any, ...]) -> Any:
        """Return the recorded function whose result is all that a call is given; None for others.

        It may be in lists of one item. Only of windows, whose results are as many as elements: of
        others there are few, and reductions beside each other are one kernel as long as nothing
        reads the result of one of them.
        """
        if not self._has_windows:
            return None
        value = args[0] if len(args) == 1 else None
        while type(value) is list and len(value) == 1:
            value = value[0]
        if type(value) is not Register or value.number >= 0:
            return None
        step = self.steps[-value.number - 1]
        return step.function if step.recorded else None

    def sealed(self, key: Any, value: Any) -> Register:
        """Add the call that seals an argument; numbers are inputs, too."""
        given = value if type(value) is Register else self.input(value)
        return self.step(key, sealed, (given,), {})

    def argument(self, value: Any, known_keys: dict[Any, Any]) -> Any:
        """Return an argument as registers and constants."""
        if isinstance(value, TaskRef):
            return self.reference(value.key, known_keys)
        if isinstance(value, Alias):
            return self.reference(value.target, known_keys)
        if isinstance(value, DataNode):
            return self.literal(value.value)
        if is_container(value):
            return self.container(value, known_keys)
        if type(value) is Task:
            return self.task(value, known_keys)
        if isinstance(value, GraphNode):
            raise Untranslatable(f"a {type(value).__name__}")
        return self.literal(value)

    def container(self, value: Task, known_keys: dict[Any, Any]) -> Any:
        """Return a list, tuple or dictionary that dask builds of references."""
        kind = value.klass if isinstance(value, NestedContainer) else value.kwargs["typ"]
        items = [self.argument(item, known_keys) for item in value.args]
        if isinstance(value, Dict):
            return dict(zip(items[::2], items[1::2], strict=True))
        if kind not in (list, tuple):
            raise Untranslatable(f"a container of type {kind.__name__}")
        return kind(items)

    def reference(self, key: Any, known_keys: dict[Any, Any]) -> Any:
        if key in known_keys:
            return known_keys[key]
        if key not in self._references:
            self._references[key] = self.input(TaskRef(key))
        return self._references[key]

    def plain(self, argument: Any) -> Any:
        """Return an argument, or the value of one that is an input and no reference."""
        if type(argument) is not Register or argument.number < 0:
            return argument
        held = self.inputs[argument.number]
        return held.value if type(held) is DataNode else argument

    def guard(self, function: partial[Any]) -> tuple[int, int]:
        """Return the number of the guard among the inputs, and that of a function in it."""
        if not self._partials:
            self._guard = len(self.inputs)
            self.inputs.append(None)  # until all are known
        self._partials.setdefault(id(function), function)
        return self._guard, list(self._partials).index(id(function))

    def literal(self, value: Any) -> Any:
        if is_constant(value):
            return value
        register = self.input(value)
        try:
            describe(value)
        except TypeError:
            self._obscure.add(register.number)
        return register

    def input(self, value: Any) -> Register:
        # dask would look inside a tuple or list for references; a DataNode is taken as it is.
        self.inputs.append(value if isinstance(value, TaskRef) else DataNode(None, value))
        return Register(len(self.inputs) - 1)


def _given(step: ProgramStep) -> tuple[Any, Any]:
    """Return a step's arguments, without functions that are examined with it for certain.

    Functions of ours that are examined call those that they are given: what these do, and what they
    read, is part of the examination, which plans are found by.
    """
    given = step.args, step.kwargs
    if not has(step.function, "examined"):
        return given
    return changed(given, lambda value: None if type(value) is FunctionType else value)
