"""Chunks that are computed again by each task that reads them, rather than written and read.

A chunk that several tasks read is a task of its own in dask's graph, whatever it costs: the
deviations of a field from its mean, say, of which a variance and a covariance are made. Where few
operations make it of chunks that are there anyway, each of its readers computes it sooner than it
is written and read again. A correlation of two fields in ten chunks was 81 tasks, and is 41.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from dask.array import chunk

from gpusched.adapters.tasks import Alias, DataNode, Task, execute_subgraph, is_container
from gpusched.emit.operations import operation_of
from gpusched.graph.functiontraits import called
from gpusched.graph.known import is_first_step
from gpusched.graph.partials import bare
from gpusched.graph.subgraph import last_task
from gpusched.graph.table import Table, block_of
from gpusched.record.catalogue import has

WRITE = 2
"""How many bytes are read in the time in which one is written, to memory that is not in a cache."""

LIGHT = 0.5
"""Bytes that are read in the time in which an operation is done with an element."""
COSTLY = 4.0
"""The same of divisions and roots."""

_HEAVY = operator.pow, operator.mod, operator.floordiv


class Recomputing:
    """Finds the chunks of a graph that are computed again.

    Parameters
    ----------
    table
        The graph.
    least
        Bytes of a chunk, or of one that it is made of, at least.
    operands, users
        By key: what each task depends on, in the order of use, and which tasks depend on it.

    Notes
    -----
    What is computed again are elementwise operations, which give the same bits each time. No task
    has to hold more than before: of what a chunk is made of, all is kept to the end anyway, but for
    one chunk that is no larger. While a reader waits, that one is there instead of the chunk that
    it would have been made to. Each task and each edge is looked at a constant number of times, and
    what one task computes again is bounded by what it costs.
    """

    def __init__(self, table: Table, least: int, operands: Mapping[Any, list[Any]],
                 users: Mapping[Any, list[Any]]) -> None:  # fmt: skip
        self._table = table
        self._tasks = table.tasks
        self._least = least
        self._operands = operands
        self._users = users
        self._kept = {*table.wanted, *table.held, *table.items}
        self._inside: dict[Any, dict[Any, None]] = {}
        """By chunk that is computed again: those that are for it, operands first, itself last."""
        self._levels: dict[Any, int] = {}
        self._costs: dict[Any, float | None] = {}

    def run(self, order: Iterable[Any]) -> Recomputed:
        """Return what is computed again.

        Parameters
        ----------
        order
            The keys of all tasks, operands before their users.
        """
        candidates = list(filter(self._may, order))
        if candidates:
            self._note_levels(order)
        for key in candidates:
            if self._fits(key) and self._pays(key):
                self._inside[key] = self._made_by(key)
        return Recomputed(self._tasks, self._inside, self._operands)

    def _note_levels(self, order: Iterable[Any]) -> None:
        for key in order:
            before = [self._levels.get(k, -1) for k in self._operands[key]]
            data = type(self._tasks[key]) is DataNode
            self._levels[key] = -1 if data else 1 + max(before, default=-1)

    def _may(self, key: Any) -> bool:
        """Return whether a chunk is large, elementwise, and read by kernels only."""
        node, readers = self._tasks[key], self._users.get(key, ())
        if type(node) is not Task or key in self._kept or not readers or not self._operands[key]:
            return False
        sizes = [self._table.nbytes(k) or 0 for k in (key, *self._operands[key])]
        if not sizes[0] or max(sizes) < self._least or self._table.why_fixed(node) is not None:
            return False
        if _cost(node) is None:
            return False
        block = block_of(key)
        return all(block_of(reader) == block and self._reads(reader) for reader in readers)

    def _fits(self, key: Any) -> bool:
        """Return whether no task has to hold more for it, nor hold it for longer."""
        sizes = {k: self._table.nbytes(k) for k in self._bases(self._made_by(key))}
        let_go = [
            size for k, size in sizes.items()
            if size is None or (size >= self._least and not self._stays(k))
        ]  # fmt: skip
        nbytes = self._table.nbytes(key) or 0
        return len(let_go) < 2 and all(size is not None and size <= nbytes for size in let_go)

    def _stays(self, key: Any) -> bool:
        """Return whether a chunk is kept to the end whatever is done."""
        return key in self._kept or type(self._tasks.get(key)) in (DataNode, type(None))

    def _reads(self, reader: Any) -> bool:
        """Return whether a task reads chunks element by element, in kernels."""
        node = self._tasks[reader]
        if type(node) is not Task or self._table.why_fixed(node) is not None:
            return False
        found = self._costs.get(reader, -1.0)
        if found == -1.0:
            found = self._costs[reader] = _cost(node, as_reader=True)
        return found is not None

    # What it costs ------------------------------------------------------------------------

    def _made_by(self, key: Any) -> dict[Any, None]:
        """Return the chunks that are computed for a chunk, itself included."""
        found: dict[Any, None] = {}
        for other in self._operands[key]:
            found |= self._inside.get(other, {})
        found[key] = None
        return found

    def _bases(self, made: Collection[Any]) -> dict[Any, None]:
        """Return the chunks of which some are computed."""
        return {k: None for key in made for k in self._operands[key] if k not in made}

    def _pays(self, key: Any) -> bool:
        """Return whether a chunk is computed in less time than it is written and read."""
        made = self._made_by(key)
        own = self._seconds(made, self._bases(made))
        nbytes = self._table.nbytes(key) or 0
        groups: defaultdict[Any, list[Any]] = defaultdict(list)
        for reader in self._users[key]:
            # Those of one level become one task, which reads what they have in common once.
            groups[reader if self._is_alone(reader) else self._levels[reader]].append(reader)
        again = 0.0
        for readers in groups.values():
            inside: dict[Any, None] = {}
            for reader in readers:
                for other in self._operands[reader]:
                    inside |= self._inside.get(other, {})
            known = {k for reader in readers for k in self._operands[reader]}
            known |= self._bases(inside).keys()
            more = {k: None for k in made if k not in inside}
            again += self._seconds(more, {k: None for k in self._bases(made) if k not in known})
        return again <= own + (WRITE + len(groups)) * nbytes

    def _is_alone(self, reader: Any) -> bool:
        """Return whether a task reduces what it computes, and so is not put with others."""
        node = self._tasks[reader]
        last = last_task(node)
        return last is not node and last is not None and is_first_step(last)

    def _seconds(self, made: Iterable[Any], read: Iterable[Any]) -> float:
        """Return how long chunks take that are made of others, in bytes that are read meanwhile."""
        found = float(sum(self._table.nbytes(k) or 0 for k in read))
        for key in made:
            told = self._table.sizes.lengths(self._tasks, key)
            elements = (self._table.nbytes(key) or 0) / told[0] if told and told[0] else 0
            found += elements * (_cost(self._tasks[key]) or 0.0)
        return found


class Recomputed:
    """Chunks that are computed again by each task that reads them.

    Parameters
    ----------
    tasks
        dask's nodes by key.
    inside
        By key of such a chunk: those that are computed for it, operands first, itself last.
    operands
        By key, what each task depends on, in the order of use.
    """

    def __init__(self, tasks: Mapping[Any, Any], inside: Mapping[Any, Mapping[Any, None]],
                 operands: Mapping[Any, list[Any]]) -> None:  # fmt: skip
        self._tasks = tasks
        self._inside = inside
        self._made_of = {key: operands[key] for key in inside}
        self.readers = {
            key: needed for key, needed in operands.items()
            if key not in inside and not inside.keys().isdisjoint(needed)
        } if inside else {}  # fmt: skip
        """By task that computes some: what it depended on."""

    def __contains__(self, key: Any) -> bool:
        return key in self._inside

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inside)

    def __len__(self) -> int:
        return len(self._inside)

    def nodes(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the chunks that some tasks compute, operands first."""
        made: dict[Any, None] = {}
        for key in keys:
            for other in self.readers.get(key, ()):
                made |= self._inside.get(other, {})
        return {key: self._tasks[key] for key in made}

    def operands(self, key: Any) -> list[Any]:
        """Return what a task depends on that computes chunks, in the order of use."""
        found: dict[Any, None] = {}
        for other in self.readers[key]:
            for made in self._inside.get(other, ()):
                found |= {k: None for k in self._made_of[made] if k not in self._inside}
            if other not in self._inside:
                found[other] = None
        return list(found)


def _cost(node: Task, as_reader: bool = False) -> float | None:
    """Return what the operations of a task cost for an element; None if others are among them.

    Parameters
    ----------
    node
        The task.
    as_reader
        Whether it may be any elementwise operations, and the first step of a reduction.
    """
    if node.func is execute_subgraph:
        inner = [each for each in node.args[0].values() if type(each) not in (Alias, DataNode)]
        if not all(isinstance(each, Task) for each in inner):
            return None
        costs = [_cost(each, as_reader) for each in inner]
        return None if None in costs else sum(filter(None, costs))
    if is_container(node):
        return None
    inner = [each for each in (*node.args, *node.kwargs.values()) if isinstance(each, Task)]
    costs = [_cost(each, as_reader) for each in inner]
    if None in costs:
        return None
    if as_reader and is_first_step(node):
        own: float | None = LIGHT
    else:
        own = _cost_of_call(*called(node), len(node.args), as_reader)
    return None if own is None else own + sum(filter(None, costs))


def _cost_of_call(
    function: Any, kwargs: Mapping[str, Any], count: int, heavy: bool
) -> float | None:
    """Return what a call costs for an element, if it is elementwise and cheap; or None."""
    if function is chunk.astype or bare(function) is chunk.astype:
        return LIGHT
    if type(function) is np.ufunc:
        operation = operation_of(function)
        if operation is None or kwargs or function.nout != 1 or count != function.nin:
            return None
        if operation.heavy:
            return COSTLY if heavy else None
        return COSTLY if "costly" in operation.traits else LIGHT
    try:
        elementwise = has(function, "elementwise") and not has(function, "view")
    except TypeError:
        return None
    if not elementwise or kwargs or (function is np.where and count != 3) or count > 3:
        return None
    if function in _HEAVY:
        return COSTLY if heavy else None
    return COSTLY if function is operator.truediv else LIGHT
