"""The steps of dask's reductions: what is done with each chunk first, and with its results after.

Steps after the first one take however many results there are, of whichever parts of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask.array import chunk, reductions
from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched.adapters.arrays import concatenate2, nanmax_skip, nanmin_skip
from gpusched.adapters.tasks import Alias, DataNode, List, Task, TaskRef, execute_subgraph, is_list
from gpusched.dataclass import dataclass
from gpusched.graph.families import leaves
from gpusched.graph.known import is_first_step
from gpusched.graph.partials import applied, bare
from gpusched.graph.subgraph import key_of_argument, layer_of, references

_SUM, _PRODUCT = (chunk.sum,), (chunk.prod,)
STEPS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (chunk.sum, _SUM),
    (chunk.nansum, _SUM),
    (chunk.prod, _PRODUCT),
    (chunk.nanprod, _PRODUCT),
    (chunk.any, (chunk.any,)),
    (chunk.all, (chunk.all,)),
    (reductions.chunk_min, (reductions.chunk_min, chunk.min)),
    (reductions.chunk_max, (reductions.chunk_max, chunk.max)),
    (nanmin_skip, (nanmin_skip,)),
    (nanmax_skip, (nanmax_skip,)),
    (reductions.mean_chunk, (reductions.mean_combine, reductions.mean_agg)),
    (reductions.moment_chunk, (reductions.moment_combine, reductions.moment_agg)),
)
"""The first steps of dask's reductions, and the steps after them that take however many results.

Those of users (`dask.array.reduction`) may be made for as many as there are chunks.
"""


def steps_after(task: Any) -> tuple[Any, ...]:
    """Return the steps after a task that is a first step of dask's; none after another one.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.reductionsteps import steps_after
    >>> first = Task("s", chunk.nansum, TaskRef("x"), axis=(0,), keepdims=True)
    >>> steps_after(first) == (chunk.sum,), steps_after(Task("s", sum, TaskRef("x")))
    (True, ())
    """
    if type(task) is not Task or not is_first_step(task):
        return ()
    if len(task.args) != 1 or key_of_argument(task.args[0]) is None:
        return ()
    function = bare(task.func)
    return next((after for step, after in STEPS if step is function), ())


@dataclass(frozen=True)
class Step:
    """A call that joins results of chunks, and reduces them."""

    function: Any
    axes: tuple[int, ...]
    keepdims: bool
    items: list[Any]
    """Keys of the results; None for what is something else."""

    def takes(self, key: Any, after: tuple[Any, ...], axes: tuple[int, ...]) -> bool:
        """Return whether several results may be given instead of one.

        All have length 1 along the axes if they are results of one step on the chunks of an array:
        they are as well joined in a row as in a grid.

        Parameters
        ----------
        key
            Of the result.
        after
            What `steps_after` returns of the step whose result it is.
        axes
            Along which that reduces.
        """
        alike = len(axes) == 1 or all(layer_of(each) == layer_of(key) for each in self.items)
        known = any(self.function is each for each in after)
        return known and alike and self.axes == axes and self.items.count(key) == 1


def step_of(task: Any) -> Step | None:
    """Return what a task does that joins results as dask's reductions do; None if it does not."""
    if type(task) is not Task or len(task.args) != 1 or not is_list(task.args[0]):
        return None
    function: Any = task.func
    joined = None
    if type(function) is Compose:
        joins, given, kwargs = applied(function.first, (), {})
        if joins is not concatenate2 or given or kwargs.keys() != {"axes"}:
            return None
        if len(function.funcs) != 1:
            return None
        joined, function = kwargs["axes"], function.funcs[0]
    function, given, kwargs = applied(function, (), task.kwargs)
    axes, keepdims = kwargs.get("axis"), kwargs.get("keepdims", False)
    if given or type(axes) is not tuple or type(keepdims) is not bool:
        return None
    items = list(leaves(task.args[0]))
    deep = all(len(place) == len(axes) for place, _ in items)
    if not deep or (joined is not None and tuple(joined) != tuple(sorted(axes))):
        return None
    keys = [key_of_argument(each) for _, each in items]
    others = len(list(references(task))) != len(keys)  # of options
    return None if others else Step(function, axes, keepdims, keys)


def spread(items: Any, instead: Mapping[Any, list[Any]]) -> Any:
    """Return nested lists of results with several instead of some, all in a row."""
    found = []
    for _, each in leaves(items):
        key = key_of_argument(each)
        found += [TaskRef(k) for k in instead[key]] if key in instead else [each]
    row = List(*found)
    while is_list(items.args[0]):
        row, items = List(row), items.args[0]
    return row


def flattened(node: Any, key: Any = None) -> tuple[dict[Any, Any], Any] | None:
    """Return the tasks that are fused to one, by key, and the last one's key: the task's own.

    None if what they are given are not only chunks and values. Blocks of one layer have the same
    keys where dask has fused layers, and get others here.
    """
    if type(node) is not Task:
        return None
    key = node.key if key is None else key
    if node.func is not execute_subgraph:
        return {key: node if node.key == key else node.substitute({}, key=key)}, key
    inner, last, names, *given = node.args
    values = {n: v for n, v in zip(names, given, strict=True) if type(v) is DataNode}
    other = {n: key_of_argument(v) for n, v in zip(names, given, strict=True) if n not in values}
    other |= {name: each.target for name, each in inner.items() if type(each) is Alias}
    last = _settled(last, other)
    if None in other.values() or last not in inner:
        return None
    own = {name: name if type(name) is tuple else (name, *_as_tuple(key))
           for name in inner if name not in other}  # fmt: skip
    own[last] = key
    own |= values
    own |= {name: own.get(found, found) for name in other for found in [_settled(name, other)]}
    result: dict[Any, Any] = {}
    for name, each in inner.items():
        if name in other:
            continue
        used = {o: own[o] for o in each.dependencies if own.get(o, o) is not o}
        each = each.substitute(used, key=own[name]) if used or own[name] != each.key else each
        flat = flattened(each)
        if flat is None:
            if type(each) is Task:
                return None
            flat = {each.key: each}, each.key
        result.update(flat[0])
    return result, key


def _settled(name: Any, other: Mapping[Any, Any]) -> Any:
    """Return the key that a key is another name of."""
    for _ in other:
        if name not in other or other[name] == name:
            return name
        name = other[name]
    return name


def _as_tuple(key: Any) -> tuple[Any, ...]:
    return key if type(key) is tuple else (key,)
