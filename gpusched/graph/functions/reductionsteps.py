"""The steps of dask's reductions: with each chunk first, and what joins the results, however many.

Users' reductions (`dask.array.reduction`) may have steps that are made for as many results as there
are chunks; dask's own are for any number of them, of whichever parts of a chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dask.array import chunk, reductions
from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched.adapters.arrays import concatenate2, nanmax_skip, nanmin_skip
from gpusched.adapters.tasks import List, Task, TaskRef, is_list
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import HALF
from gpusched.graph.functions.partials import applied, bare
from gpusched.graph.subgraph import key_of_argument, last_task, layer_of, leaves, references

_SUM, _PRODUCT = (chunk.sum,), (chunk.prod,)
STEPS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (chunk.sum, _SUM),
    (chunk.nansum, _SUM),
    (chunk.prod, _PRODUCT),
    (chunk.nanprod, _PRODUCT),
    (chunk.any, (chunk.any,)),
    (chunk.all, (chunk.all,)),
    (chunk.min, (chunk.min,)),
    (chunk.max, (chunk.max,)),
    (reductions.chunk_min, (reductions.chunk_min, chunk.min)),
    (reductions.chunk_max, (reductions.chunk_max, chunk.max)),
    (nanmin_skip, (nanmin_skip,)),
    (nanmax_skip, (nanmax_skip,)),
    (reductions.mean_chunk, (reductions.mean_combine, reductions.mean_agg)),
    (reductions.moment_chunk, (reductions.moment_combine, reductions.moment_agg)),
)
"""The first steps of dask's reductions, and the steps after them; the first of these leaves what
can be joined again."""
_SHAPING = frozenset(["axis", "keepdims", "dtype", "order", "ddof", "implicit_complex_dtype"])
"""Options of these steps with which they take however many results all the same; `initial`, or a
function of somebody's, would be taken into account for each."""

_FUNCTIONS = {
    "sum": (chunk.sum, chunk.nansum),
    "numel": (reductions.numel, reductions.nannumel),
}
"""Functions that dask itself passes to them."""
# By identity: each task of a graph is asked, and users' functions may not be hashable.
_AFTER = {id(first): after for first, after in STEPS}
_AFTER_FIRST = frozenset(id(each) for _, after in STEPS for each in after)
"""By identity, all that are called after a first step."""


def is_first_step(task: Task) -> bool:
    """Return whether a task is what one of dask's own reductions does with a chunk first.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.functions.reductionsteps import is_first_step
    >>> is_first_step(Task("s", np.sum, TaskRef("x"), axis=(0,), keepdims=True))
    True
    >>> is_first_step(Task("s", np.median, TaskRef("x"), axis=(0,), keepdims=True))
    False
    """
    axes = task.kwargs.get("axis")
    if type(axes) is not tuple or task.kwargs.get("keepdims") is not True:
        return False
    return id(bare(task.func)) in _AFTER and all(type(axis) is int for axis in axes)


def reduces(task: Any) -> bool:
    """Return whether a task ends with what looks like the first step of a reduction.

    Functions of the user's own may have the same options, and reduce nothing.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.functions.reductionsteps import reduces
    >>> reduces(Task("s", sum, TaskRef("x"), axis=(0,), keepdims=True))
    True
    """
    last = last_task(task)
    return last is not None and {"axis", "keepdims"} <= last.kwargs.keys()


def is_of_reductions(function: Any) -> bool:
    """Return whether dask's reductions call a function with a chunk, or with results of chunks.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.graph.functions.reductionsteps import is_of_reductions
    >>> is_of_reductions(chunk.nansum), is_of_reductions(chunk.argmax)
    (True, False)
    """
    return id(function) in _AFTER or id(function) in _AFTER_FIRST


def after(function: Any, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what joins results of a function that is called with a chunk and some options.

    Nothing if it is not a first step, or its results cannot be joined.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.graph.functions.reductionsteps import after
    >>> after(chunk.nansum, {"axis": (0,), "keepdims": True}) == (chunk.sum,)
    True
    >>> after(chunk.nansum, {"axis": (0,), "initial": 1})
    ()
    """
    found = _AFTER.get(id(function), ())
    # Each of several results of float16 would be rounded.
    return found if found and are_dask_s(options) and options.get("dtype") != HALF else ()


def are_dask_s(options: Mapping[str, Any]) -> bool:
    """Return whether a step has no options but those that dask's own reductions have."""
    return all(
        name in _SHAPING or any(value is each for each in _FUNCTIONS.get(name, ()))
        for name, value in options.items()
    )


def steps_after(task: Any) -> tuple[Any, ...]:
    """Return the steps after a task that is a first step of dask's; none after another one.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.functions.reductionsteps import steps_after
    >>> first = Task("s", chunk.nansum, TaskRef("x"), axis=(0,), keepdims=True)
    >>> steps_after(first) == (chunk.sum,), steps_after(Task("s", sum, TaskRef("x")))
    (True, ())
    """
    if type(task) is not Task or not is_first_step(task):
        return ()
    if len(task.args) != 1 or key_of_argument(task.args[0]) is None:
        return ()
    function, args, options = applied(task.func, (), task.kwargs)
    return () if args else after(function, options)


def is_step(task: Any) -> bool:
    """Return whether a task may be one of dask's after a first one: whether it calls such a step.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.functions.reductionsteps import is_step
    >>> is_step(Task("s", chunk.sum, TaskRef("x"))), is_step(Task("s", sum, TaskRef("x")))
    (True, False)
    """
    function = getattr(task, "func", None)
    function = getattr(function, "funcs", (function,))[0]
    return id(bare(function)) in _AFTER_FIRST


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
        alike = len(axes) == 1 or self._layers == {layer_of(key)}
        known = any(self.function is each for each in after)
        return known and alike and self.axes == axes and self._times[key] == 1

    @cached_property
    def _times(self) -> Counter[Any]:
        """How many times each result is joined: of thousands, each is asked for."""
        return Counter(self.items)

    @cached_property
    def _layers(self) -> set[str]:
        return set(map(layer_of, self.items))


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
    if given or type(axes) is not tuple or type(keepdims) is not bool or not are_dask_s(kwargs):
        return None
    items = list(leaves(task.args[0]))
    deep = all(len(place) == len(axes) for place, _ in items)
    if not deep or (joined is not None and tuple(joined) != tuple(sorted(axes))):
        return None
    keys = [key_of_argument(each) for _, each in items]
    others = len(list(references(task))) != len(keys)  # of options
    return None if others else Step(function, axes, keepdims, keys)


def with_results(step: Task, instead: Mapping[Any, list[Any]]) -> Task:
    """Return a step that joins several results instead of some, all in a row."""
    items, found = step.args[0], list[Any]()
    for _, each in leaves(items):
        key = key_of_argument(each)
        found += [TaskRef(k) for k in instead[key]] if key in instead else [each]
    row = List(*found)
    while is_list(items.args[0]):
        row, items = List(row), items.args[0]
    return Task(step.key, step.func, row, **step.kwargs)
