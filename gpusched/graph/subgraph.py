"""What a task of dask's is made of: others that dask has fused into it, references, and joins.

`evaluate` is what goes through one, for all who ask what its calls would return.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from dask.typing import Key

from gpusched.adapters.tasks import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    NestedContainer,
    Task,
    TaskRef,
    execute_subgraph,
    identity_cast,
    is_container,
    is_list,
)

Call = Callable[[Task, list[Any], dict[str, Any], Any], Any]
"""Takes a task that calls a function, the arguments, and the task's key."""

_SUFFIX = re.compile(r"(_\.\d+)+$")


def layer_of(key: Any) -> str:
    """Return the name of the layer that a key belongs to, also inside fused tasks.

    Examples
    --------
    >>> from gpusched.graph.subgraph import layer_of
    >>> layer_of(("add-5f0c", 0, 1)), layer_of("add-5f0c_.0_.1")
    ('add-5f0c', 'add-5f0c')
    """
    name = str(key[0] if isinstance(key, tuple) and key else key)
    return _SUFFIX.sub("", name) if "_." in name else name


def fused_into(node: Any) -> Mapping[Any, Any]:
    """Return the tasks that are fused into a task, by key; none if it is a single one."""
    return node.args[0] if type(node) is Task and node.func is execute_subgraph else {}


def made_of(node: Any) -> Sequence[Any]:
    """Return the nodes that a task is made of that others are not fused into; itself if it is one.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.subgraph import made_of
    >>> first, last = Task("a", abs, TaskRef("x")), Task("b", max, TaskRef("a"), 3)
    >>> [each.func for each in made_of(Task.fuse(first, last))]
    [<built-in function abs>, <built-in function max>]
    """
    if type(node) is not Task or node.func is not execute_subgraph:
        return (node,)
    return [each for inner in node.args[0].values() for each in made_of(inner)]


def last_task(node: Any) -> Task | None:
    """Return the last of the tasks that are fused to one; None if its result is from outside."""
    while isinstance(node, Task) and node.func is execute_subgraph:
        inner, node = node.args[0], node.args[0].get(node.args[1])
        while isinstance(node, Alias):
            node = inner.get(node.target)
    return node if isinstance(node, Task) else None


def result_key(node: Any) -> Any:
    """Return the key that a task's result belongs to: that of the last task fused into it."""
    if not isinstance(node, Task) or node.func is not execute_subgraph:
        return getattr(node, "key", None)
    wanted = node.args[1]
    if not isinstance(wanted, tuple):
        return node.key  # fused by layers, whose key is the last layer's
    inner = node.args[0].get(wanted)
    return result_key(inner) if isinstance(inner, Task) else wanted


def resolved(tasks: Mapping[Any, Any], key: Any) -> Any:
    """Return the key of the task behind a key that may be another name for it.

    Examples
    --------
    >>> from dask.task_spec import Alias, Task
    >>> from gpusched.graph.subgraph import resolved
    >>> resolved({"x": Task("x", abs, -1), "y": Alias("y", "x"), "z": Alias("z", "y")}, "z")
    'x'
    """
    node = tasks.get(key)
    while type(node) is Alias and node.target != key:
        key = node.target
        node = tasks.get(key)
    return key


def settled(names: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return names of what is no name, instead of names of names.

    Parameters
    ----------
    names
        What each is another name of.

    Raises
    ------
    ValueError
        If names are names of each other.

    Examples
    --------
    >>> from gpusched.graph.subgraph import settled
    >>> settled({"z": "y", "y": "x"})
    {'z': 'x', 'y': 'x'}
    """
    found: dict[Any, Any] = {}
    for key in names:
        path: dict[Any, None] = {}
        while key in names and key not in found:
            if key in path:
                raise ValueError(f"{key!r} is another name of itself: the graph has no such task")
            path[key] = None
            key = names[key]
        found |= dict.fromkeys(path, found.get(key, key))
    return found


def depth_first(starts: Iterable[Any], operands: Callable[[Any], list[Any]]) -> list[Any]:
    """Return keys and those that they depend on, each after its operands.

    Parameters
    ----------
    starts
        Where to begin.
    operands
        Called once for each key.

    Examples
    --------
    >>> from gpusched.graph.subgraph import depth_first
    >>> depth_first("a", {"a": ["c", "b"], "b": ["c"], "c": []}.get)
    ['c', 'b', 'a']
    """
    found: list[Any] = []
    started: set[Any] = set()
    stack: list[tuple[Any, bool]] = []
    for start in starts:
        stack.append((start, False))
        while stack:
            key, ready = stack.pop()
            if ready:
                found.append(key)
            elif key not in started:
                started.add(key)
                needed = operands(key)
                if needed:
                    stack.append((key, True))
                    stack += [(other, False) for other in reversed(needed)]
                else:
                    found.append(key)
    return found


def key_of_argument(value: Any) -> Any:
    """Return what an argument of a task refers to, or is another name of, if it does no more.

    None for anything else.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Alias, TaskRef
    >>> from gpusched.graph.subgraph import key_of_argument
    >>> key_of_argument(TaskRef("x")), key_of_argument(Alias("y", "x")), key_of_argument(3)
    ('x', 'x', None)
    """
    if type(value) is TaskRef:
        return value.key
    return value.target if type(value) is Alias else None


def leaves(chunks: Any, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield what nested lists in a task's argument hold, and where.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, TaskRef
    >>> from gpusched.graph.subgraph import leaves
    >>> [(place, each.key) for place, each in leaves(List(List(TaskRef("a"), TaskRef("b"))))]
    [((0, 0), 'a'), ((0, 1), 'b')]
    """
    if is_list(chunks):
        for k, each in enumerate(chunks.args):
            yield from leaves(each, (*index, k))
    else:
        yield index, chunks


def references(node: Any) -> Iterator[Any]:
    """Yield the keys that a task refers to, in the order of its arguments.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, Task, TaskRef
    >>> from gpusched.graph.subgraph import references
    >>> list(references(Task("x", max, List(TaskRef("b"), TaskRef("a")), key=TaskRef("c"))))
    ['b', 'a', 'c']
    """
    if isinstance(node, TaskRef):
        yield node.key
    elif type(node) is Alias:
        yield node.target
    elif isinstance(node, Task):
        for value in node.args:
            if isinstance(value, TaskRef):  # Futures are, too.
                yield value.key
            elif isinstance(value, GraphNode) and value.dependencies:
                yield from references(value)
        if node.kwargs and not isinstance(node, NestedContainer):
            for value in node.kwargs.values():
                if isinstance(value, TaskRef | GraphNode):
                    yield from references(value)
    elif isinstance(node, GraphNode):
        yield from node.dependencies


def operands(node: Any) -> list[Any]:
    """Return the keys that a task depends on, each once, in the order of computing with them.

    dask sorts what fused tasks depend on by name: other data, with other names, would give the same
    program other kernels.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.subgraph import operands
    >>> inner = Task("d", divmod, TaskRef("y"), TaskRef("x"))
    >>> fused = Task.fuse(inner, Task("m", max, TaskRef("d")))
    >>> sorted(fused.dependencies), operands(fused)
    (['x', 'y'], ['y', 'x'])
    """
    if len(node.dependencies) < 2:
        return list(node.dependencies)
    if not isinstance(node, Task) or node.func is not execute_subgraph:
        return list(dict.fromkeys(references(node)))
    inner, last, names, *given = node.args
    outer = dict(zip(names, given, strict=True))
    order = depth_first([last], lambda key: operands(inner[key]) if key in inner else [])
    needed = (outer[key] for key in order if key in outer)
    return list(dict.fromkeys(chain.from_iterable(map(references, needed))))


def walk(task: Task, outer: Any, argument: Callable[[Any, Any], Any]) -> Any:
    """Return what `argument` makes of the task inside whose result is the fused task's.

    Parameters
    ----------
    task
        One that calls dask's ``execute_subgraph``.
    outer
        What is known outside, by key.
    argument
        Called with a node or an argument, and what is known where it stands, by key; with every
        task inside after those it depends on.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.subgraph import walk
    >>> first, last = Task("a", abs, TaskRef("x")), Task("b", max, TaskRef("a"), 3)
    >>> def call(value, known):
    ...     if isinstance(value, TaskRef):
    ...         return known[value.key]
    ...     if not isinstance(value, Task):
    ...         return value
    ...     return value.func(*(call(item, known) for item in value.args))
    >>> walk(Task.fuse(first, last), {"x": -5}, call)
    5
    """
    inner, wanted, keys, *values = task.args
    given = dict(zip(keys, values, strict=True))
    known: dict[Any, Any] = {}

    def needed(key: Any) -> list[Any]:
        # In the order of use: dask lists what comes from outside in the order of hashes, of a
        # fused task among these, too.
        inside = key in inner and key not in given
        return [k for k in operands(inner[key]) if k in inner or k in given] if inside else []

    for key in depth_first([wanted], needed):
        if key in given or key not in inner:
            known[key] = argument(given[key], outer)
        else:
            known[key] = argument(inner[key], known)
    return known[wanted]


def evaluate(value: Any, values: Mapping[Any, Any], call: Call, key: Any = None,
             made: dict[Any, Any] | None = None) -> Any:  # fmt: skip
    """Return the result of a task, or the value of one of its arguments, as dask finds them.

    Parameters
    ----------
    value
        A node of a graph, or an argument of one.
    values
        By key, what it depends on.
    call
        What is done for each call.
    key
        Of the task that `value` is an argument of.
    made
        Gets the result of each task, of those that dask has fused to one, too.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.subgraph import evaluate
    >>> task = Task("y", max, TaskRef("x"), 3)
    >>> evaluate(task, {"x": 5}, lambda task, args, kwargs, key: (task.func.__name__, args))
    ('max', [5, 3])
    """
    if isinstance(value, TaskRef):
        return values[value.key]
    if not isinstance(value, GraphNode):
        return value
    if isinstance(value, DataNode):
        return value.value
    if isinstance(value, Alias):
        return values[value.target]
    if not isinstance(value, Task):
        raise TypeError(f"a task of the kind {type(value).__name__}")
    own = value.key if value.key is not None else key

    def inside(item: Any, known: Mapping[Any, Any] = values) -> Any:
        return evaluate(item, known, call, own, made)

    if value.func is execute_subgraph:
        found = walk(value, values, inside)
    else:
        args = list(map(inside, value.args))
        kwargs = {}
        if not isinstance(value, NestedContainer):
            kwargs = {name: inside(item) for name, item in value.kwargs.items()}
        found = _contained(value, args, kwargs)
        if found is None:
            found = call(value, args, kwargs, own)
    if made is not None:
        made[own] = found
    return found


def _contained(task: Task, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return the container that a task is in dask's form; None for others."""
    if isinstance(task, Dict):
        return dict(zip(args[::2], args[1::2], strict=True))
    if isinstance(task, NestedContainer):
        return task.klass(args)
    return kwargs["typ"](args) if task.func is identity_cast else None


def copied(node: Any) -> set[Key]:
    """Return the keys of what a task only copies into its result.

    Examples
    --------
    >>> from dask.array.core import concatenate3
    >>> from gpusched.adapters.tasks import List, Task, TaskRef
    >>> from gpusched.graph.subgraph import copied
    >>> copied(Task("x", concatenate3, List(TaskRef("a"), Task("b", abs, TaskRef("c")))))
    {'a'}
    """
    # Without this module, which clusters start without, no task calls its functions.
    core = sys.modules.get("dask.array.core")
    function = getattr(node, "func", None)
    if core is None or (
        function is not core.concatenate3 and function is not core.concatenate_shaped
    ):
        return set()
    whole, read = set[Key](), set[Key]()
    for argument in node.args:
        if is_container(argument):  # Anything else is given back as it is.
            _note_keys(argument, whole, read)
    return whole - read


def at_once(inputs: Iterable[Any], lent: Collection[Any], nbytes: Callable[[Any], int]) -> int:
    """Return the bytes of a task's inputs that are there at once: all, but of those lent one."""
    found = {key: nbytes(key) for key in inputs}
    largest = max((found[key] for key in lent if key in found), default=0)
    return largest + sum(size for key, size in found.items() if key not in lent)


def _note_keys(argument: Any, whole: set[Key], read: set[Key]) -> None:
    """Note the keys of what a call is given itself, and of what calls within are given."""
    if is_container(argument):
        for each in argument.args:
            _note_keys(each, whole, read)
    elif isinstance(argument, Alias):
        whole.add(argument.target)
    elif isinstance(argument, TaskRef):
        whole.add(argument.key)
    elif isinstance(argument, GraphNode):
        read |= argument.dependencies


def flattened(node: Any) -> tuple[dict[Any, Any], Any] | None:
    """Return the tasks that are fused to one, by key, and the last one's key: the task's own.

    None if what they are given are not only chunks and values. Blocks of one layer have the same
    keys where dask has fused layers, and get others here.
    """
    if type(node) is not Task:
        return None
    key: Any = node.key
    if node.func is not execute_subgraph:
        return {key: node}, key
    inner, last, names, *given = node.args
    values = {n: v for n, v in zip(names, given, strict=True) if type(v) is DataNode}
    other = {n: key_of_argument(v) for n, v in zip(names, given, strict=True) if n not in values}
    other |= {name: each.target for name, each in inner.items() if type(each) is Alias}
    other = settled({name: found for name, found in other.items() if name != found})
    last = other.get(last, last)
    if None in other.values() or last not in inner:
        return None
    own = {name: name if type(name) is tuple else (name, *_as_tuple(key))
           for name in inner if name not in other}  # fmt: skip
    own[last] = key
    own |= values
    own |= {name: own.get(found, found) for name, found in other.items()}
    result: dict[Any, Any] = {}
    for name, each in inner.items():
        if name in other:
            continue
        used = {o: own[o] for o in each.dependencies if own.get(o, o) is not o}
        each = each.substitute(used, key=own[name]) if used or own[name] != each.key else each
        if type(each) is not Task or each.func is not execute_subgraph:
            result[each.key] = each
            continue
        flat = flattened(each)
        if flat is None:
            return None
        result.update(flat[0])
    return result, key


def _as_tuple(key: Any) -> tuple[Any, ...]:
    return key if type(key) is tuple else (key,)
