"""dask-array's chunk functions -> those of dask that do the same, which the other modules know.

dask-array has copies of dask's chunk functions. A copy is exchanged for the original if its code
and all that it refers to are the same. The few that were written again are named here, with a
digest of both texts: they are no longer exchanged once one of the two changes.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from dask._task_spec import GraphNode, Task

from gpusched.graph.frontends.adapter import COUNTERPARTS
from gpusched.graph.frontends.alike import alike

REWRITTEN = {
    "dask_array._core_utils._concatenate2":
        ("dask.array.core._concatenate2", "af3d1144b953b56d"),
    "dask_array._core_utils.concatenate3":
        ("dask.array.core.concatenate3", "7bbd5b190da80c9d"),
    "dask_array._dispatch._divide":
        ("dask.array.numpy_compat.divide", "4b8e4de68cf3c11e"),
    "dask_array._dispatch._nannumel":
        ("dask.array.backends._nannumel", "0b4445dd31085e41"),
    "dask_array._dispatch._numel":
        ("dask.array.backends._numel_ndarray", "96898160d8322a80"),
    "dask_array._dispatch._numel_masked":
        ("dask.array.backends._numel_masked", "fef8969327018008"),
    "dask_array._utils.array_safe":
        ("dask.array.utils.array_safe", "1e0f7dd05ea4f512"),
    "dask_array._utils.asarray_safe":
        ("dask.array.utils.asarray_safe", "76ae39a93200d8f4"),
    "dask_array._utils.meta_from_array":
        ("dask.array.utils.meta_from_array", "4bb15decfce5904a"),
    "dask_array.io._store.load_store_chunk":
        ("dask.array.core.load_store_chunk", "c66eac0c302d1ea1"),
    "dask_array.linalg._tensordot._matmul":
        ("dask.array.routines._matmul", "d478f9fa484d7059"),
    "dask_array.reductions._common.divide":
        ("dask.array.reductions.divide", "8ea4de7ec80a0815"),
    "dask_array.reductions._common.mean_chunk":
        ("dask.array.reductions.mean_chunk", "4ef7d58a2d3b644e"),
    "dask_array.reductions._common.moment_chunk":
        ("dask.array.reductions.moment_chunk", "cfbef61c8dd39662"),
}  # fmt: skip
"""Functions of dask-array that do what one of dask does in other words, by name."""

TOGETHER = (
    ("dask_array.reductions._common.mean_chunk", "dask_array.reductions._common.mean_combine",
     "dask_array.reductions._common.mean_agg"),
    ("dask_array.reductions._common.moment_chunk", "dask_array.reductions._common.moment_combine",
     "dask_array.reductions._common.moment_agg"),
)  # fmt: skip
"""Functions that hand each other what dask's hand each other in another form: all are exchanged, or
none of them."""

Pairs = dict[Callable[..., Any], Callable[..., Any]]


def counterparts() -> Pairs:
    """Return dask's function for each of dask-array's that does the same, if that is imported."""
    return _found() if "dask_array" in sys.modules else {}


@functools.lru_cache(maxsize=1)
def _found() -> Pairs:
    pairs = {
        theirs: ours
        for name, (other, digest) in REWRITTEN.items()
        if digest_of(theirs := _named(name), ours := _named(other)) == digest
    }
    equal = list(pairs.items())
    for name, others in COUNTERPARTS.items():
        own = vars(importlib.import_module(name)).values()
        functions = [f for f in own if isinstance(f, FunctionType) and f.__module__ == name]
        for other in map(importlib.import_module, others):
            for function in functions:
                original = getattr(other, function.__name__, None)
                if function not in pairs and alike(function, original, equal):
                    pairs[function] = original
    for names in TOGETHER:
        group = [_named(name) for name in names]
        if any(function not in pairs for function in group):
            for function in group:
                pairs.pop(function, None)
    return pairs


def _named(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute, None)


def digest_of(first: Any, second: Any) -> str:
    """Return what is the same only while the texts of two functions are."""
    try:
        text = inspect.getsource(first) + inspect.getsource(second)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Exchange:
    """Exchanges functions in the tasks of one graph.

    Parameters
    ----------
    pairs
        What stands in for a function.

    Notes
    -----
    Belongs to one thread. Functions made of others are made once for all tasks.
    """

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        self._made: dict[int, tuple[Any, Any]] = {}

    def value(self, value: Any) -> Any:
        """Return a function, a task, or a structure of them with its functions exchanged."""
        if not self._pairs:
            return value
        if isinstance(value, FunctionType):
            return self._pairs.get(value, value)
        if isinstance(value, GraphNode):
            return self._task(value) if type(value) is Task else value
        if isinstance(value, functools.partial) or hasattr(value, "funcs"):
            entry = self._made.get(id(value))
            if entry is None:
                # The function is kept with what it became, so that its id stays its own.
                entry = self._made[id(value)] = value, self._of_others(value)
            return entry[1]
        if type(value) in (list, tuple):
            items = [self.value(item) for item in value]
            same = all(a is b for a, b in zip(items, value, strict=True))
            return value if same else type(value)(items)
        if type(value) is dict:
            found = {key: self.value(item) for key, item in value.items()}
            return value if all(found[key] is item for key, item in value.items()) else found
        return value

    def _of_others(self, function: Any) -> Any:
        """Exchange functions in a `functools.partial`, or in what toolz composes."""
        if isinstance(function, functools.partial):
            func, args = self.value(function.func), self.value(function.args)
            keywords = self.value(function.keywords)
            same = func is function.func and args is function.args and keywords is function.keywords
            return function if same else functools.partial(func, *args, **keywords)
        parts = (function.first, *function.funcs)
        found = self.value(parts)
        return function if found is parts else type(function)(tuple(reversed(found)))

    def _task(self, task: Task) -> Task:
        func, args, kwargs = self.value(task.func), self.value(task.args), self.value(task.kwargs)
        if func is task.func and args is task.args and kwargs is task.kwargs:
            return task
        return Task(task.key, func, *args, _data_producer=task.data_producer, **kwargs)
