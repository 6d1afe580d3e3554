"""Tasks that an element can be followed into, and what is said of those where it cannot."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from gpusched.adapters.tasks import Task
from gpusched.debugging.origins import is_elementwise, moves_by_name
from gpusched.graph.functions import partials
from gpusched.graph.functions.partials import bare, parts
from gpusched.graph.programs.functiontraits import Functions, called
from gpusched.graph.subgraph import last_task
from gpusched.quantities import count

_REDUCTIONS: tuple[Any, ...] = (
    np.sum, np.prod, np.min, np.max, np.any, np.all, np.mean, np.var, np.std, np.nansum,
     np.nanprod, np.nanmin, np.nanmax, np.count_nonzero,
)  # fmt: skip


def follows(node: Any, functions: Functions) -> bool:
    """Return whether an element of a task's result comes from few elements of what it reads."""
    function = _result_function(node)
    if function is None or _reduces(function):
        return False
    if is_elementwise(function) or moves_by_name(function):
        return True
    task = last_task(node)
    assert task is not None  # it has a function
    return functions.traits(function, task.args, called(task)[1]).recorded


def reads(node: Any) -> bool:
    """Return whether a task depends on no other and computes nothing: it reads, or cuts."""
    function = _result_function(node)
    return not node.dependencies and (function is None or moves_by_name(function))


def told_of(node: Any) -> str:
    """Return what makes a task's result.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.debugging.sources import told_of
    >>> told_of(Task("y", np.sum, TaskRef("x")))
    'comes out of sum, of 1 chunk'
    """
    function = _result_function(node)
    name = "a task" if function is None else name_of(function)
    given = len(node.dependencies)
    return f"comes out of {name}" + (f", of {count(given, 'chunk')}" if given else "")


def name_of(function: Any) -> str:
    """Return the name of what a partial application, or a composition, calls last.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.debugging.sources import name_of
    >>> name_of(partial(np.sum, axis=0))
    'sum'
    """
    return partials.name_of([*parts(function)][-1])


def _result_function(node: Any) -> Any:
    """Return what makes a task's result; None if nothing is called."""
    task = last_task(node)
    if task is None:
        # What is not inside is another task's result, given on as it is.
        return operator.getitem if isinstance(node, Task) else None
    return called(task)[0]


def _reduces(function: Any) -> bool:
    last = bare([*parts(function)][-1])
    by_dask = getattr(last, "__module__", "") == "dask.array.reductions"
    return by_dask or any(last is each for each in _REDUCTIONS)
