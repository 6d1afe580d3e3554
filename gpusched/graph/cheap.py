"""Which tasks may share a batch: those whose time depends on the size of their chunks only."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.utils import methodcaller

from gpusched.adapters.tasks import DataNode, Task
from gpusched.graph.partials import bare, callables, parts
from gpusched.graph.program import Program, name_of
from gpusched.graph.rewrite import Functions
from gpusched.graph.segment import ProgramStep
from gpusched.record.catalogue import has

_LIBRARIES = (
    "numpy",
    "dask.array",
    "dask.utils",
    "operator",
    "_operator",
    "builtins",
    "gpusched.record",
    "gpusched.plan",
    "gpusched.emit",
    "gpusched.backends",
)


class Cheap:
    """Finds the tasks that call libraries' functions only, or functions made of such.

    A function of the user's own may take any time, and two of them in a batch would take turns: so
    only those are batched that are shown to call NumPy's functions only. What reads chunks from
    somewhere is not.

    Notes
    -----
    Belongs to one thread, for one graph.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._refused: dict[int, str] = {}
        self._kept: list[Any] = []
        """What the memo's ids are of."""

    def refusal(self, program: Program) -> str:
        """Return the name of what a program calls that is not known to be cheap; "" if nothing."""
        found = self._refused.get(id(program))
        if found is None:
            found = next(filter(None, map(self._of, program.steps)), "")
            self._remember(program, found)
        return found

    def _of(self, step: ProgramStep) -> str:
        """Return the name of what a call calls that is not known to be cheap."""
        traits = self._functions.traits(step.function, step.args, step.kwargs)
        if traits.replayed and not has(bare(step.function), "reads"):
            return ""
        called = [step.function, *callables((step.args, step.kwargs))]
        return next(filter(None, map(self._of_function, called)), "")

    def _of_function(self, function: Any) -> str:
        found = self._refused.get(id(function))
        if found is None:
            found = "" if self._is_cheap(function) else name_of(function)
            self._remember(function, found)
        return found

    def _remember(self, function: Any, found: str) -> None:
        self._refused[id(function)] = found
        self._kept.append(function)

    def _is_cheap(self, function: Any) -> bool:
        if has(bare(function), "reads"):
            return False
        return all(map(_of_library, parts(function)))


def _of_library(function: Any) -> bool:
    """Return whether a function is one of NumPy's, Python's or dask's own of arrays."""
    if isinstance(function, methodcaller):
        return True  # a method of a chunk
    if isinstance(function, np.ufunc):
        # Those that `numpy.frompyfunc` makes are the user's.
        return getattr(np, function.__name__, None) is function
    if not hasattr(function, "__name__"):
        return False  # an object such as `numpy.vectorize` makes
    module = str(getattr(function, "__module__", ""))
    return any(module == name or module.startswith(f"{name}.") for name in _LIBRARIES)


def moves(task: Task) -> bool:
    """Return whether a program's task has a result of no more elements than what it takes."""
    if any(type(a) is DataNode and isinstance(a.value, list | np.ndarray) for a in task.args):
        return False  # an index that may name an element several times
    program = task.func
    assert isinstance(program, Program)
    return all(has(bare(step.function), "keeps") for step in program.steps)
