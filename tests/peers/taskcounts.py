"""A pytest plugin that counts the tasks of another project's tests, and those that launch kernels.

``pytest -p tests.peers.taskcounts -p tests.peers.fused --pyargs dask.array.tests.test_ufunc``

A task is what dask's local schedulers run under one key; each of those that gpusched runs as one,
in a batch, is a task, too. It counts if it returns arrays and does more than make chunks of
nothing, cut them out of others, join or rename them. It is fused if a kernel is launched between
its start and its end. Nothing is asked of gpusched but its count of launches and what it calls, so
that plain dask and other releases of gpusched are counted in the same way, and no computation goes
another way for it: a callback of dask's would switch `gpusched.graph.passes.assembling` off.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pytest
from dask import local
from dask._task_spec import Task

PIECES = frozenset({
    "_getitem", "_identity", "_identity_cast", "_vindex_merge", "_vindex_slice_and_transpose",
    "concatenate", "concatenate2", "concatenate3", "concatenate_arrays", "finalize", "getitem",
    "getter", "getter_inline", "getter_nofancy", "identity", "part", "pieces", "take",
    "to_container", "together",
    "_apply_random", "_apply_random_func", "_arange", "_linspace", "arange", "empty_like",
    "full_like", "linspace", "ones_like", "zeros_like",
})  # fmt: skip
"""Functions of dask's and gpusched's that cut chunks out of what there is, join or rename them, or
make them of nothing. A kernel that does this alone is none that counts."""

DEPTH = 3
"""How deep in lists and dictionaries arrays are looked for."""


PROGRAMS = "gpusched.graph.programs.program", "gpusched.graph.program"
"""Where the class of programs is, in today's gpusched and in that of November 24."""


class _Thread(threading.local):
    """What a thread has done since the task that it runs began."""

    launches = 0
    programs: list[tuple[Any, Any, int]] | None = None
    """Programs that have run, with what they returned and how many kernels they launched."""
    counters: Any = None
    """gpusched's, while the thread changes them."""
    before = 0
    """Their launches when it began to."""


_thread = _Thread()


def watch_launches() -> None:
    """Note from now on which thread launches kernels, with whatever gpusched there is."""
    import gpusched

    # All releases change their counters inside of `with updating():`, which takes a lock.
    statistics = importlib.import_module(gpusched.statistics.__module__)
    kind = type(statistics.updating())
    enter, leave = kind.__enter__, kind.__exit__

    def entered(self: Any) -> Any:
        counters = _thread.counters = enter(self)
        _thread.before = counters.launches
        return counters

    def left(self: Any, *exception: Any) -> Any:
        _thread.launches += _thread.counters.launches - _thread.before
        return leave(self, *exception)

    kind.__enter__, kind.__exit__ = entered, left
    programs = program_class()
    call = programs.__call__

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _thread.launches
        value = call(self, *args, **kwargs)
        if _thread.programs is not None:
            _thread.programs.append((self, value, _thread.launches - before))
        return value

    programs.__call__ = called


def program_class() -> Any:
    """Return the class of programs of whatever gpusched there is."""
    for name in PROGRAMS:
        with suppress(ImportError):
            return vars(importlib.import_module(name))["Program"]
    raise ImportError(f"none of {PROGRAMS}")


class TaskCounts:
    """Counts of tasks.

    Notes
    -----
    Thread-safe. A task inside of which others are computed has only the kernels that none of those
    has launched.
    """

    def __init__(self) -> None:
        self.test = ""
        """The test that runs."""
        self.passed: set[str] = set()
        self.unfused: dict[str, Counter[str]] = {}
        """By test, the tasks that launched no kernel, by what they call last that computes."""
        self.fused: Counter[str] = Counter()
        """Tasks that launched kernels, by test."""
        self._lock = threading.Lock()

    def watch_tasks(self) -> None:
        """Count from now on what dask's local schedulers run."""
        execute = local.execute_task

        def counting(key: Any, task_info: Any, dumps: Any, loads: Any, *others: Any) -> Any:
            outer = _thread.launches, _thread.programs
            _thread.launches, _thread.programs = 0, []
            try:
                found = execute(key, task_info, dumps, loads, *others)
                if not found[2]:
                    self.note(loads(task_info)[0], loads(found[1])[0])
                return found
            finally:
                _thread.launches, _thread.programs = outer

        local.execute_task = counting

    def note(self, node: Any, value: Any) -> None:
        """Count a task that this thread has run; of a batch, each of its tasks.

        Parameters
        ----------
        node
            dask's, of the graph that was run.
        value
            What it returned.
        """
        functions = list(called(node))
        batches = [each for each in functions if _kind(each) == "Batch"]
        if not batches:
            return self._add(functions, value, _thread.launches)
        for program, result, launches in _thread.programs or ():
            inside = list(_parts(program))
            if not any(_kind(each) == "Batch" for each in inside):
                self._add(inside, result, launches)
        for step in chain.from_iterable(batch.steps for batch in batches):
            if _kind(step.function) != "Program":
                self._add(list(_parts(step.function)), value, 0)
        return None

    def _add(self, functions: list[Any], value: Any, launches: int) -> None:
        names = [_name(each) for each in functions]
        computing = [each for each in names if each.rpartition(".")[2] not in PIECES]
        if not (computing and holds_array(value)):
            return
        with self._lock:
            if launches:
                self.fused[self.test] += 1
            else:
                self.unfused.setdefault(self.test, Counter())[computing[-1]] += 1

    def totals(self) -> dict[str, Any]:
        """Return the counts of the tests that passed."""
        unfused = sum((self.unfused[test] for test in self.passed & self.unfused.keys()), Counter())
        fused = sum(self.fused[test] for test in self.passed)
        return {"tests": len(self.passed), "tasks": fused + unfused.total(), "fused": fused,
                "unfused": unfused.most_common()}  # fmt: skip


def called(node: Any) -> Iterator[Any]:
    """Yield the functions that a task calls: of tasks that are fused into it, and of programs.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> from tests.peers.taskcounts import called
    >>> first, last = Task("a", abs, TaskRef("x")), Task("b", max, TaskRef("a"), 3)
    >>> [each.__name__ for each in called(Task.fuse(first, last))]
    ['abs', 'max']
    """
    if not isinstance(node, Task):  # Data, or another name of a task.
        return
    inside = [*node.args, *node.kwargs.values()]
    if node.has_subgraph():
        inside = list(node.args[0].values())
    for each in inside:
        yield from called(each)
    if not node.has_subgraph():
        yield from _parts(node.func)


def _parts(function: Any) -> Iterator[Any]:
    """Yield what a function calls that only puts others together, of any release of gpusched."""
    kind = _kind(function)
    if kind == "Program":
        inside = [step.function for step in function.steps]
    elif kind == "Compose":
        inside = [function.first, *function.funcs]
    elif kind == "partial":
        inside = [function.func]
    elif kind == "Assembled":
        inside = [function._function]
    else:
        yield function
        return
    for each in inside:
        yield from _parts(each)


def _kind(function: Any) -> str:
    return type(function).__name__


def _name(function: Any) -> str:
    """Return the module and name of a function; those of its class if it is an object."""
    name = getattr(function, "__name__", None) or getattr(function, "method", None)
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}.{name or type(function).__name__}"


def holds_array(value: Any, depth: int = DEPTH) -> bool:
    """Return whether something is an array, or has one in it.

    Examples
    --------
    >>> import numpy as np
    >>> from tests.peers.taskcounts import holds_array
    >>> holds_array({"sums": [np.float32(1)]}), holds_array("text"), holds_array(1.0)
    (True, False, False)
    """
    kind = type(value)
    if isinstance(value, np.generic) or hasattr(kind, "__array_function__"):
        return True
    if kind.__module__.split(".")[0] == "gpusched":  # Chunks of a batch, in one piece of memory.
        return True
    if depth and isinstance(value, list | tuple | dict):
        items = value.values() if isinstance(value, dict) else value
        return any(holds_array(each, depth - 1) for each in items)
    return False


_counts = TaskCounts()


def pytest_configure() -> None:
    _counts.watch_tasks()
    if "gpusched" in sys.modules:  # `tests.peers.fused` has loaded it, earlier.
        watch_launches()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    _counts.test = item.nodeid
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _counts.passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    path = os.environ.get("GPUSCHED_PEER_STATISTICS")
    if path:
        with open(f"{path}.tasks", "w") as file:
            json.dump(_counts.totals(), file)
