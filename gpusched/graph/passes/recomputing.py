"""Cheap results that later stages need, too -> computed again by these, and never written.

An array that is shown as a mean and as distances from it is read twice: once by the first step of
the mean, and again when that is known. Where it is made of chunks that are there anyway by as
little as a subtraction, a mask or a comparison, making it again in the kernels that read it costs
less than to write it, keep it and read it. A correlation by xarray of two fields with gaps read and
wrote a hundred bytes for two float64, and reads 32.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dask.array import chunk

from gpusched.adapters.tasks import Alias, DataNode, GraphNode, Task, TaskRef
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.operations import operation_of
from gpusched.graph.functions.independence import operands_of
from gpusched.graph.functions.partials import applied
from gpusched.graph.functions.reductionsteps import reduces
from gpusched.graph.passes.table import KnownBytes, Table, drop
from gpusched.graph.programs.functiontraits import called
from gpusched.graph.running.blocks import into
from gpusched.graph.subgraph import depth_first, made_of, operands
from gpusched.record.ufuncs import FAST_POWERS
from gpusched.roles import cluster_threads

MOST = 16
"""Calls that are made again at most for a result: each takes a tenth or so of what memory does."""

MASK = 8
"""How many times as large a result may be as one that it is made of by itself, such as a mask."""

WRITTEN = 2
"""How many times as long as reading it takes to write an array: its cache lines are read, too."""

COMPUTES = GraphBreak.NO_GAIN("results that take longer to compute again than to read")
READS = GraphBreak.NO_GAIN("results that are computed of more than they are")
KEPT = GraphBreak.KEPT("results of chunks that would be kept instead, and are larger")
NOT_RECORDED = GraphBreak.NO_KERNEL("results that functions need which are not recorded")


def recomputed(table: Table, least: int) -> Table:
    """Return a graph in which cheap results are computed again by tasks of later stages.

    Parameters
    ----------
    table
        The graph.
    least
        Bytes of such a result at least.

    Notes
    -----
    A stage ends with reductions, and with functions that are not recorded: elementwise tasks of one
    stage become one where they have the same chunk (`gpusched.graph.passes.merging`).

    The values are the same: each element is computed from the same operands by the same functions.
    No more bytes are kept than before, and no more are read and written together, if all tasks of a
    stage that need a result read it once. Each task and each edge is looked at a constant number of
    times.
    """
    reason = table.why_small(least)
    if reason is not None:
        table.note("recompute", reason)
        return table
    return _Recomputing(table, least).run()


class _Recomputing:
    def __init__(self, table: Table, least: int) -> None:
        self._table = table
        self._tasks = table.tasks
        self._least = least
        self._nbytes = KnownBytes(table)
        self._held = {*table.wanted, *table.held}
        """Keys of the chunks that stay until the end, whatever is done."""
        self._kept = set(self._held)
        """Keys of what is written in any case: these, and what is not computed again."""
        self._users: defaultdict[Any, list[Any]] = defaultdict(list)
        self._stages: dict[Any, int] = {}
        self._again: dict[Any, list[Any]] = {}
        """By the keys of what is computed again: tasks that do so, itself last."""

    def run(self) -> Table:
        shared = {key for key, node in self._tasks.items() if self._is_shared(key, node)}
        if not shared:
            return self._table
        order = depth_first(self._tasks, lambda key: self._note(key, shared))
        for key in order:
            self._stages[key] = self._stage(key)
        for key in order:
            if key in shared:
                self._decide(key)
        return self._rewritten() if self._again else self._table

    def _is_shared(self, key: Any, node: Any) -> bool:
        several = type(node) is Task and self._table.users[key] > 1 and key not in self._kept
        return several and self._nbytes[key] >= self._least and is_light(node)

    def _note(self, key: Any, shared: set[Any]) -> list[Any]:
        """Note which shared results a task needs, and return which tasks it does."""
        dependencies = self._tasks[key].dependencies
        for other in dependencies & shared:
            self._users[other].append(key)
        return [other for other in dependencies if other in self._tasks]

    def _stage(self, key: Any) -> int:
        """Return how many tasks end a stage before a task, one after the other."""
        before = [k for k in self._tasks[key].dependencies if k in self._stages]
        return max([self._stages[k] + self._ends_stage(k) for k in before], default=0)

    def _ends_stage(self, key: Any) -> bool:
        node = self._tasks[key]
        return reduces(node) or (type(node) is Task and not self._table.is_recorded(node))

    def _is_later(self, user: Any, key: Any) -> bool:
        """Return whether who needs a result is no part of the stage that computes it."""
        return self._stages[user] > self._stages[key] or self._ends_stage(user)

    def _decide(self, key: Any) -> None:
        """Note whether a result is computed again."""
        later = [k for k in self._users[key] if self._is_later(k, key)]
        if not later:
            return
        again, given = self._made_of(key)
        alone = len(later) == len(self._users[key])
        reason = self._why_kept(key, again, given) or self._why_no_gain(key, given, later, alone)
        if reason is None:
            self._again[key] = again
        else:
            self._kept.add(key)
            self._table.note("recompute", reason)

    def _made_of(self, key: Any) -> tuple[list[Any], set[Any]]:
        """Return the tasks that a result is computed by again, itself last, and of what.

        None of those that make more than `MOST` calls.
        """
        given: set[Any] = set()
        calls = 0

        def needed(name: Any) -> list[Any]:
            nonlocal calls
            calls += len(made_of(self._tasks[name]))
            found = list[Any]()
            for other in operands(self._tasks[name]) if calls <= MOST else ():
                if self._is_repeated(other):
                    found.append(other)
                else:
                    given.add(other)
            return found

        again = depth_first([key], needed)
        return again if calls <= MOST else [], given

    def _is_repeated(self, key: Any) -> bool:
        node = self._tasks.get(key)
        inner = type(node) is Task and key not in self._kept and bool(node.dependencies)
        large = inner and self._nbytes[key] * MASK >= self._least
        return large and is_light(node) and not self._table.why_fixed(node)

    def _why_kept(self, key: Any, again: Sequence[Any], given: set[Any]) -> Reason | None:
        """Return why a result must be kept, or others would be for longer; None if it need not."""
        table = self._table
        fixed = table.why_fixed(self._tasks[key])
        users = (self._why_read(self._tasks[user]) for user in self._users[key])
        reason = fixed or next(filter(None, users), None)
        if reason is not None:
            return reason
        if any(table.inside(self._tasks[k]) is None for k in again):
            return NOT_RECORDED
        if not again:
            return COMPUTES
        unknown = [k for k in given if table.nbytes(k) is None]
        if unknown:
            return table.unknown("results of chunks", unknown)
        longer = sum(self._nbytes[k] for k in given if not self._is_there(k))
        return KEPT if longer > self._nbytes[key] else None

    def _why_read(self, node: Any) -> Reason | None:
        """Return why a task must be given a result as it is; None if it may compute it again."""
        if type(node) is not Task:
            return NOT_RECORDED
        table, fixed = self._table, self._table.why_fixed(node)
        recorded = table.is_worthwhile(node) and table.is_recorded(node)
        able = recorded and table.inside(node) is not None
        return fixed or (None if able else NOT_RECORDED)

    def _is_there(self, key: Any) -> bool:
        """Return whether a chunk stays whatever is done: data, a result, or one of a cluster's.

        Data of a graph are on no worker of a cluster before a task there needs them.
        """
        if key not in self._tasks or key in self._held:
            return True
        return type(self._tasks[key]) is DataNode and not cluster_threads()

    def _why_no_gain(self, key: Any, given: set[Any], later: list[Any],
                     alone: bool) -> Reason | None:  # fmt: skip
        """Return why a result is not computed again where it may be; None if that pays.

        A stage reads it at most once, as tasks that read the same chunk are merged. Who is not
        alone is of a stage that reads what it is made of all the same.
        """
        size, read = self._nbytes[key], sum(self._nbytes[k] for k in given)
        stages = len({self._stages[k] for k in later})
        spared = (WRITTEN + stages) * size + (read if alone else 0)
        return READS if stages * read > spared else None

    def _rewritten(self) -> Table:
        tasks, table = dict(self._tasks), self._table
        for key, node in self._tasks.items():
            if type(node) is not Task:
                continue
            used = [k for k in operands(node) if k in self._again and self._is_later(key, k)]
            if used:
                inside: dict[Any, Any] = {}
                for name in [*(k for other in used for k in self._again[other]), key]:
                    flat = table.inside(self._tasks[name])
                    assert flat is not None
                    inside.update(flat[0])
                tasks[key] = table.fused([*inside.values()], key)
        drop(tasks, self._again, {*table.wanted, *table.items})
        return replace(table, tasks=tasks)


def is_light(node: Any) -> bool:
    """Return whether a task computes elements that take about as long as an addition.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.passes.recomputing import is_light
    >>> is_light(Task("y", np.subtract, TaskRef("x"), 1)), is_light(Task("y", np.exp, TaskRef("x")))
    (True, False)
    """
    calls = [each for each in made_of(node) if type(each) is not Alias]
    return all(type(each) is Task and _is_light_call(each) for each in calls)


def _is_light_call(task: Task) -> bool:
    function, kwargs = called(task)
    function, args, kwargs = applied(function, task.args, kwargs)
    if function is chunk.astype:
        return kwargs.keys() == {"astype_dtype"}
    given = operands_of(function, args, kwargs)
    if given is None or not all(map(_is_operand, given)):
        return False
    if function is operator.pow:
        return type(args[1]) in (int, float) and args[1] in FAST_POWERS
    ufunc = into(function)
    if not isinstance(ufunc, np.ufunc):
        return True
    operation = operation_of(ufunc)
    return operation is not None and not operation.heavy


def _is_operand(value: Any) -> bool:
    return not isinstance(value, GraphNode) or type(value) in (TaskRef, Alias, DataNode)
