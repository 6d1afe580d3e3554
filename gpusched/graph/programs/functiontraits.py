"""What is asked of functions that tasks call: whether they are recorded, and worth a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from dask.array.core import apply_and_enforce

from gpusched import config
from gpusched.adapters.arrays import apply_along_axis, enforce_dtype
from gpusched.adapters.tasks import DataNode, Task, execute_subgraph, identity_cast, is_list
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import error_state
from gpusched.graph.functions.known import (
    EXACT,
    called_for_place,
    computes,
    computes_located,
    exact_for,
    known,
    replaced_by,
)
from gpusched.graph.functions.lanes import along_axis, called_along
from gpusched.graph.functions.partials import Guard, bare, slow_part
from gpusched.graph.placement.cupycalls import by_library
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.templates import identity_of
from gpusched.graph.safety import examination
from gpusched.graph.safety.examination import kind_of
from gpusched.graph.subgraph import made_of
from gpusched.plan.grids import is_join
from gpusched.plan.overrides import Overrides, active
from gpusched.record.catalogue import has, is_marked, own_traits
from gpusched.store.tuned import generation


@dataclass(frozen=True)
class Traits:
    """What rewriting asks of a function."""

    recorded: bool
    """Whether it takes lazy chunks: known, asked for, or shown to be safe."""
    replayed: bool
    """Whether what was recorded of it holds for the next chunk."""
    identity: Any
    """What makes two calls' functions the same, the values they read from outside included."""
    refused: bool = False
    """Whether it is a function of the user's own that is not shown to be safe."""
    quick: bool = False
    """Whether it is known to take no longer than to write its result, and to change nothing."""
    little: bool = False
    """Whether it is a function of the user's that is shown to be safe, and holds no arrays."""
    between: bool = False
    """Whether it calls what no kernel computes, between kernels."""


class Functions:
    """The traits of each function met while one graph is rewritten.

    A memo for that long only: a function may read values that change between graphs.

    Parameters
    ----------
    overrides
        Users' versions of kernels that the programs run with; those in effect here if None.
    """

    def __init__(self, overrides: Overrides | None = None) -> None:
        self.overrides = active() if overrides is None else overrides
        self.key = self.overrides, generation(), repr(config.get("fusion")), error_state()
        """What programs and their plans depend on besides their calls."""
        self._known: dict[int, tuple[Any, Any, Traits | None]] = {}
        self._found: dict[Any, Traits] = {}
        self._guards: dict[tuple[int, ...], DataNode] = {}

    def guard(self, functions: tuple[partial[Any], ...]) -> DataNode:
        """Return what notices changes of partial applications, for all tasks that call them."""
        key = tuple(map(id, functions))
        found = self._guards.get(key)
        if found is None:
            found = self._guards[key] = DataNode(None, Guard(functions))
        return found

    def traits(self, function: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Traits:
        """Return the traits of a function in a call with these arguments.

        Parameters
        ----------
        function
            The function; kept alive, so that its id stays its own.
        args, kwargs
            Of a task or of a program's step: references to chunks, and values.
        """
        entry = self._known.get(id(function))
        if entry is None:
            exact = replaced_by(function, EXACT)
            entry = self._known[id(function)] = function, exact, _settled(exact)
        _, exact, settled = entry
        if settled is not None:
            return settled
        kinds = tuple(map(kind_of, args))
        names = tuple((name, kind_of(value)) for name, value in kwargs.items())
        key = id(function), kinds, names
        found = self._found.get(key)
        if found is None:
            verdict = examination.remembered(exact, kinds, dict(names))
            found = self._found[key] = _traits(exact, verdict)
        return found

    # Of a task, as of all others of its form ------------------------------------------------

    def worthwhile(self, task: Task) -> bool:
        """Return whether a task has a function that is recorded and computes, or one of `EXACT`.

        Or one that CUDA's libraries compute, for which a worker that owns a GPU moves the chunks.
        dask puts programs of a graph that is optimised again into tasks of other tasks and their
        other names: a worker must see that there is a program, whose chunks may stay on its device.
        """
        if task.func is execute_subgraph:
            inner = [node for node in task.args[0].values() if type(node) is Task]
            found = any(type(node.func) is Program or self.worthwhile(node) for node in inner)
            return found or computes_located(task)
        function, kwargs = called(task)
        if passes_on(function, task.args):
            return False
        exact = exact_for(function)
        if (exact is not function and not has(exact, "moves")) or by_library(function):
            return True
        # What moves or joins elements is done without beside other calls, and no gain by itself.
        moves = has(bare(function), "moves") or is_join(bare(function))
        recorded = self.traits(function, task.args, kwargs).recorded
        return recorded and computes(function) and not moves

    def is_recorded(self, task: Task) -> bool:
        """Return whether a task calls only what kernels compute, or what takes no time."""
        if task.func is execute_subgraph:
            return all(self.is_recorded(n) for n in task.args[0].values() if isinstance(n, Task))
        inner = [each for each in (*task.args, *task.kwargs.values()) if isinstance(each, Task)]
        return self._is_quick(task) and all(map(self.is_recorded, inner))

    def _is_quick(self, task: Task) -> bool:
        function, kwargs = called(task)
        if function is identity_cast:
            return True
        traits = self.traits(function, task.args, kwargs)
        return traits.quick or (traits.recorded and traits.replayed and not traits.between)

    def is_taken(self, task: Task) -> bool:
        """Return whether a task is to be a program: if it is worth one, or to have it counted.

        A program counts functions that are graph breaks, be there anything to fuse or not.
        """
        if self.worthwhile(task):
            return True
        for node in made_of(task):
            if type(node) is Task:
                function, kwargs = called(node)
                placed = called_for_place(function, node.args)
                refused = placed is not function and not known(placed)
                if refused or self.traits(function, node.args, kwargs).refused:
                    return True
        return False


def _settled(function: Any) -> Traits | None:
    """Return the traits of a function that are the same in every call; None if they are not."""
    if known(function):
        return Traits(True, True, identity_of(function))
    if "quick" in own_traits(bare(function)):
        return Traits(False, False, identity_of(function), quick=True)
    verdict = examination.of_any_call(function)
    return None if verdict is None else _traits(function, verdict)


def _traits(function: Any, verdict: examination.Verdict) -> Traits:
    safe = verdict.reason is None
    asked = is_marked(function)
    others = GraphBreak.LIBRARY, GraphBreak.NO_ARRAY
    own = verdict.reason is not None and verdict.reason.kind not in others
    refused = own and not asked
    identity = identity_of(function), verdict.outside.identity
    return Traits(safe or asked, safe, identity, refused, slow_part(function) is None,
                  safe and verdict.is_little, verdict.outside.between)  # fmt: skip


def passes_on(function: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a function computes nothing, since it is given a single chunk."""
    if not has(bare(function), "several"):
        return False
    items: Any = args[0] if args else None
    if is_list(items):
        items = items.args
    return not isinstance(items, list | tuple) or len(items) < 2


def called(task: Task) -> tuple[Any, dict[str, Any]]:
    """Return the function that a task calls in the end, and its keyword arguments."""
    found = enforces(task)
    if task.func is apply_along_axis and (named := called_along(task.kwargs)) is not None:
        return along_axis, named
    if found is None:
        return task.func, task.kwargs
    given = {k: v for k, v in task.kwargs.items() if k not in found}
    return task.kwargs[found[0]], given


DTYPE = "enforce_dtype_function", "enforce_dtype"
NDIM = "_func", "expected_ndim"
"""Options of dask's that say which function is called, and what its result is to be of."""


def enforces(task: Task) -> tuple[str, str] | None:
    """Return the options of dask's call of a function whose result is to be of a dtype or ndim.

    None for other tasks.
    """
    for caller, options, kind in ((enforce_dtype, DTYPE, np.dtype), (apply_and_enforce, NDIM, int)):
        given = [task.kwargs.get(name) for name in options] if task.func is caller else [None]
        if callable(given[0]) and isinstance(given[1], kind):
            return options
    return None
