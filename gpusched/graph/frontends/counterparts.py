"""Other front ends' chunk functions -> those of dask.array that do the same, which others know.

They have copies of dask's chunk functions. A copy is exchanged for the original if its code
and all that it refers to are the same. The few that were written again are named in the adapter,
with a digest of both texts: they are no longer exchanged once one of the two changes.
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

import tlz  # type: ignore[import-untyped]
import toolz  # type: ignore[import-untyped]

from gpusched.adapters.tasks import DataNode, GraphNode, Task
from gpusched.graph.frontends.adapter import COUNTERPARTS, REWRITTEN, TOGETHER
from gpusched.graph.frontends.alike import alike

_CURRIED: Any = tlz.curry | toolz.curry
"""tlz is cytoolz where that is installed; dask and dask-array need not take the same one."""

Pairs = dict[Callable[..., Any], Callable[..., Any]]


def counterparts() -> Pairs:
    """Return dask's function for each that does the same of the front ends that are imported."""
    return _found(tuple(name for name in _PACKAGES if name in sys.modules))


_PACKAGES = "dask_array", "dask.array._array_expr"


@functools.lru_cache(maxsize=2 ** len(_PACKAGES))
def _found(packages: tuple[str, ...]) -> Pairs:
    pairs = {
        theirs: ours
        for name, (other, digest) in REWRITTEN.items()
        if name.startswith(packages)
        and digest_of(theirs := _named(name), ours := _named(other)) == digest
    }
    equal = list(pairs.items())
    for name, others in COUNTERPARTS.items():
        if not name.startswith(packages) or _module(name) is None:
            continue
        own = map(_without_curry, vars(_module(name)).values())
        functions = [f for f in own if isinstance(f, FunctionType) and f.__module__ == name]
        for other in map(_module, others):
            for function in functions:
                original = _without_curry(getattr(other, function.__name__, None))
                if function not in pairs and alike(function, original, equal):
                    pairs[function] = original
    for names in (names for names in TOGETHER if names[0].startswith(packages)):
        group = [_named(name) for name in names]
        if any(function not in pairs for function in group):
            for function in group:
                pairs.pop(function, None)
    return pairs


def _without_curry(value: Any) -> Any:
    return value.func if isinstance(value, _CURRIED) else value


def _named(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(_module(module), attribute, None)


def _module(name: str) -> Any:
    """Return a module; None where it has moved, so that its functions are not exchanged."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


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
        if type(value) is DataNode:
            found = self.value(value.value) if callable(value.value) else value.value
            return value if found is value.value else DataNode(value.key, found)
        if isinstance(value, GraphNode):
            return self._task(value) if type(value) is Task else value
        if isinstance(value, functools.partial | _CURRIED) or hasattr(value, "funcs"):
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
        """Exchange functions in a `functools.partial`, or in what toolz composes or curries."""
        if isinstance(function, functools.partial | _CURRIED):
            func, args = self.value(function.func), self.value(function.args)
            keywords = self.value(function.keywords)
            if func is function.func and args is function.args and keywords is function.keywords:
                return function
            made: Any = type(function)(func, *args, **keywords)
            if hasattr(function, "__name__"):
                made.__name__ = function.__name__
            return made
        parts = (function.first, *function.funcs)
        found = self.value(parts)
        return function if found is parts else type(function)(tuple(reversed(found)))

    def _task(self, task: Task) -> Task:
        func, args, kwargs = self.value(task.func), self.value(task.args), self.value(task.kwargs)
        if func is task.func and args is task.args and kwargs is task.kwargs:
            return task
        return Task(task.key, func, *args, _data_producer=task.data_producer, **kwargs)
