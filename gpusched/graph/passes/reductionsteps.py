"""The steps of dask's reductions, in a graph: with each chunk first, and with its results after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched.adapters.arrays import concatenate2
from gpusched.adapters.tasks import List, Task, TaskRef, is_list
from gpusched.dataclass import dataclass
from gpusched.graph.functions.firststeps import (
    AFTER_FIRST,
    after,
    are_dask_s,
    is_first_step,
)
from gpusched.graph.functions.partials import applied, bare
from gpusched.graph.subgraph import key_of_argument, layer_of, leaves, references


def steps_after(task: Any) -> tuple[Any, ...]:
    """Return the steps after a task that is a first step of dask's; none after another one.

    Examples
    --------
    >>> from dask.array import chunk
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.passes.reductionsteps import steps_after
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
    >>> from gpusched.graph.passes.reductionsteps import is_step
    >>> is_step(Task("s", chunk.sum, TaskRef("x"))), is_step(Task("s", sum, TaskRef("x")))
    (True, False)
    """
    function = getattr(task, "func", None)
    function = getattr(function, "funcs", (function,))[0]
    return id(bare(function)) in AFTER_FIRST


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
    if given or type(axes) is not tuple or type(keepdims) is not bool or not are_dask_s(kwargs):
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
