"""dask tasks from data: what `saved_programs` wrote, checked, under names of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from dask.tokenize import tokenize
from dask.utils import key_split

from gpusched.adapters.tasks import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    List,
    Task,
    TaskRef,
    Tuple,
    execute_subgraph,
)
from gpusched.saving.arguments import check_argument, check_arguments
from gpusched.saving.permitted_functions import check_call
from gpusched.saving.values import Decoder, Input, Result, index
from gpusched.serialization.frames import CorruptFrameError


@dataclass(frozen=True)
class Call:
    """One call of a program."""

    function: Callable[..., Any]
    args: list[Any]
    """Values, among them `Input` and `Result`."""
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class SavedProgram:
    """What tasks have in common."""

    calls: list[Call]
    result: Any
    """Values, among them `Input` and `Result`."""
    inputs: int
    """How many it has at least."""


@dataclass(frozen=True)
class SavedTask:
    """One task."""

    key: Any
    program: SavedProgram
    inputs: list[Any]
    """Values, and `TaskRef`s to the keys of other tasks, as they were saved."""


def decode_tasks(graph: Mapping[str, Any], decoder: Decoder, given: set[str]) -> list[SavedTask]:
    """Return the tasks of a file.

    Raises `CorruptFrameError` if they are not what `encode_tasks` made, or refer to tasks that
    there are not.

    Parameters
    ----------
    graph
        ``programs`` and ``tasks``, from any source.
    decoder
        Reads the values in them.
    given
        Names of the arrays that the tasks may use and that the file does not have.
    """
    programs, tasks = graph.get("programs"), graph.get("tasks")
    if not isinstance(programs, list) or not isinstance(tasks, list):
        raise CorruptFrameError("the graph has no programs and tasks")
    inputs = _inputs_of(tasks, len(programs))
    read = [_program(p, decoder, n) for p, n in zip(programs, inputs, strict=True)]
    decoder.inputs = decoder.steps = 0
    found = [
        SavedTask(decode_key(key), read[number], [_input(item, decoder) for item in items])
        for key, number, items in tasks
    ]
    _check_references(found, given)
    return found


def _inputs_of(tasks: list[Any], programs: int) -> list[int]:
    """Return how many inputs every task of each program has at least."""
    least: dict[int, int] = {}
    for task in tasks:
        match task:
            case [_, number, list(items)]:
                number = index(number, programs)
                least[number] = min(least.get(number, len(items)), len(items))
            case _:
                raise CorruptFrameError(f"{task!r:.200} is not a task")
    return [least.get(number, 0) for number in range(programs)]


def _program(encoded: Any, decoder: Decoder, inputs: int) -> SavedProgram:
    decoder.inputs, decoder.steps = inputs, 0
    match encoded:
        case {"steps": list(steps), "result": result}:
            calls = []
            for step in steps:
                calls.append(_call(step, decoder))
                decoder.steps += 1
            found = decoder.value(result)
            check_argument(found)
            return SavedProgram(calls, found, inputs)
    raise CorruptFrameError(f"{encoded!r:.200} is not a program")


def _call(encoded: Any, decoder: Decoder) -> Call:
    match encoded:
        case {"call": function, "args": list(args), "kwargs": list(kwargs)}:
            called = decoder.called(function)
            call = Call(called, decoder.value(args), decoder.value({"dict": kwargs}))
            if callable(called) and all(isinstance(name, str) for name in call.kwargs):
                check_call(called, call.args)
                check_arguments(called, call.args, call.kwargs)
                return call
    raise CorruptFrameError(f"{encoded!r:.200} is not a call")


def _input(encoded: Any, decoder: Decoder) -> Any:
    if isinstance(encoded, dict) and "key" in encoded:
        return TaskRef(decode_key(encoded["key"]))
    found = decoder.value(encoded)
    check_argument(found)
    return found


def decode_key(encoded: Any) -> Any:
    """Return a key that was saved."""
    if isinstance(encoded, str):
        return encoded
    named = isinstance(encoded, list) and encoded and isinstance(encoded[0], str)
    if named and all(type(item) in (str, int, float) for item in encoded):
        return tuple(encoded)
    raise CorruptFrameError(f"{encoded!r:.200} is not a key")


def name_of_key(key: Any) -> str:
    """Return the name of the array, or of the single task, that a key belongs to."""
    return key if isinstance(key, str) else key[0]


def _check_references(tasks: list[SavedTask], given: set[str]) -> None:
    dependencies = {
        task.key: [r.key for r in task.inputs if isinstance(r, TaskRef)] for task in tasks
    }
    if len(dependencies) != len(tasks):
        raise CorruptFrameError("two tasks have the same key")
    for key, needed in dependencies.items():
        if name_of_key(key) in given:
            raise CorruptFrameError(f"task {key!r:.200} has the name of an input")
        for other in needed:
            if other not in dependencies and name_of_key(other) not in given:
                raise CorruptFrameError(f"task {key!r:.200} needs {other!r:.200}, which is missing")
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        raise CorruptFrameError(f"tasks need each other: {error.args[1]!r:.200}") from error


class Names:
    """Gives the keys of a file names of their own, so that they mean no other task.

    Parameters
    ----------
    token
        What is unlike in other files, and where it matters, in other calls.
    given
        Names that are given to arrays of the file from outside.
    """

    def __init__(self, token: str, given: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._names = dict(given or {})

    def name(self, name: str) -> str:
        """Return the name that replaces one of the file's."""
        if name not in self._names:
            self._names[name] = f"{key_split(name)}-{tokenize(name, self._token)}"
        return self._names[name]

    def key(self, key: Any) -> Any:
        """Return the key that replaces one of the file's."""
        return self.name(key) if isinstance(key, str) else (self.name(key[0]), *key[1:])


def rebuild(tasks: list[SavedTask], names: Names) -> dict[Any, GraphNode]:
    """Return the graph of tasks, under other names."""
    shared: dict[int, dict[Any, GraphNode]] = {}
    graph: dict[Any, GraphNode] = {}
    for task in tasks:
        key = names.key(task.key)
        inputs = [
            TaskRef(names.key(item.key)) if isinstance(item, TaskRef) else item
            for item in task.inputs
        ]
        graph[key] = _node(key, task.program, inputs, shared)
    return graph


def _node(key: Any, program: SavedProgram, inputs: list[Any], shared: dict[int, Any]) -> GraphNode:
    if not program.calls:
        return _moved(key, _with(program.result, inputs, []))
    last = len(program.calls) - 1
    if not last and _is_result(program.result, last):
        return _task(key, program.calls[0], inputs, [])
    # All tasks of a program share one inner graph, which names its inputs.
    if id(program) not in shared:
        shared[id(program)] = _inner(program, len(inputs))
    keys = tuple(f"input-{k}" for k in range(len(inputs)))
    arguments = [item if isinstance(item, TaskRef) else DataNode(None, item) for item in inputs]
    wanted = f"step-{last}" if _is_result(program.result, last) else "result"
    return Task(key, execute_subgraph, shared[id(program)], wanted, keys, *arguments)


def _is_result(value: Any, number: int) -> bool:
    # The type first: an array would compare each of its elements.
    return isinstance(value, Result) and value.number == number


def _inner(program: SavedProgram, inputs: int) -> dict[Any, GraphNode]:
    given = [TaskRef(f"input-{k}") for k in range(inputs)]
    results = [TaskRef(f"step-{k}") for k in range(len(program.calls))]
    inner = {
        f"step-{k}": _task(f"step-{k}", call, given, results)
        for k, call in enumerate(program.calls)
    }
    if not _is_result(program.result, len(results) - 1):
        inner["result"] = _moved("result", _with(program.result, given, results))
    return inner


def _task(key: Any, call: Call, inputs: list[Any], results: list[Any]) -> GraphNode:
    args = [_with(item, inputs, results) for item in call.args]
    kwargs = {name: _with(item, inputs, results) for name, item in call.kwargs.items()}
    return Task(key, call.function, *args, **kwargs)


def _moved(key: Any, value: Any) -> GraphNode:
    """Return the node of a value that needs no call."""
    if isinstance(value, TaskRef):
        return Alias(key, value.key)
    if isinstance(value, DataNode):
        return DataNode(key, value.value)
    if isinstance(value, GraphNode):
        return Task(key, _same, value)
    return DataNode(key, value)


def _same(value: Any) -> Any:
    return value


def _with(value: Any, inputs: list[Any], results: list[Any]) -> Any:
    """Return a value with what its stand-ins stand for, as dask wants it in a task."""
    if isinstance(value, Input):
        found = inputs[value.number]
        return found if isinstance(found, GraphNode | TaskRef) else DataNode(None, found)
    if isinstance(value, Result):
        return results[value.number]
    if type(value) in (list, tuple):
        items = [_with(item, inputs, results) for item in value]
        if any(isinstance(item, GraphNode | TaskRef) for item in items):
            return List(*items) if type(value) is list else Tuple(*items)
    if type(value) is dict:
        pairs = {key: _with(item, inputs, results) for key, item in value.items()}
        if any(isinstance(item, GraphNode | TaskRef) for item in pairs.values()):
            return Dict(pairs)
    return value
