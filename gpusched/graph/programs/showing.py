"""Which programs have to lay their results out as NumPy does, since functions may see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpusched.adapters.tasks import (
    DataNode,
    GraphNode,
    Task,
    is_container,
)
from gpusched.graph.functions.unrecorded import sees
from gpusched.graph.programs.functiontraits import called
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.templates import Forms
from gpusched.graph.subgraph import copied, made_of
from gpusched.record.steps import ProgramStep


def show(
    graph: dict[Any, Any], wanted: Iterable[Any], before: Mapping[Any, Any], forms: Forms
) -> None:
    """Have programs of a graph lay their results out as NumPy does, where that may be seen.

    A function that is not recorded sees what comes to it by way of any other tasks, too, and may
    see chunks that are results, as those of `persist` are: what `compute` joins is a new array,
    as is what `concatenate3` and `concatenate_shaped` do.

    Parameters
    ----------
    graph
        dask's nodes by key, rewritten; changed in place.
    wanted
        Keys of the results.
    before
        The nodes before they were rewritten, which belong to others.
    forms
        Of those that are tasks.
    """
    found = {key for key in wanted if type(key) is tuple}
    for node in graph.values():
        if type(node) is not Task:
            continue
        if _sees(node) if type(node.func) is Program else forms.answer(_sees_inside, node):
            found |= node.dependencies
    waiting = list(found)
    programs: dict[Program, Program] = {}
    while waiting:
        key = waiting.pop()
        node = graph.get(key)
        if not isinstance(node, GraphNode):
            continue
        reached = node.dependencies - found
        if type(node) is Task and type(node.func) is Program:
            program = programs.get(node.func)
            if program is None:
                program = programs[node.func] = node.func.shown()
            if key in before and before[key] is node:
                graph[key] = Task(key, program, *node.args, _data_producer=node.data_producer)
            else:
                node.func = program
        else:  # What a join copies has its own layout there.
            reached -= copied(node)
        waiting += reached
        found |= reached


def _sees_inside(node: Any) -> bool:
    """Return whether one of the tasks that are fused to one does, see `_sees`."""
    return any([type(each) is Task and _sees(each) for each in made_of(node)])


def _sees(task: Task) -> bool:
    """Return whether a task calls a function that may see how its chunks are laid out in memory."""
    if type(task.func) is Program and not any(map(_is_callable, task.args)):
        return task.func.sees
    function, kwargs = called(task)
    given = tuple(_literals((*task.args, *kwargs.values())))
    return sees(ProgramStep(function, given, dict.fromkeys(kwargs)))


def _is_callable(argument: Any) -> bool:
    return type(argument) is DataNode and callable(argument.value)


def _literals(arguments: Iterable[Any]) -> Iterable[Any]:
    """Yield what the arguments of a task hold besides references to others."""
    for argument in arguments:
        if is_container(argument):
            yield from _literals(argument.args)
        elif type(argument) is Task:
            yield argument.func
            yield from _literals((*argument.args, *argument.kwargs.values()))
        elif type(argument) is DataNode:
            yield argument.value
        elif not isinstance(argument, GraphNode):
            yield argument
