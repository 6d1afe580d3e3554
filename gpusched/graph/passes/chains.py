"""Tasks that need not be tasks of their own: other names, links of chains, pieces of large chunks.

Schedulers have no tasks for names. A task that only one other task needs becomes part of that task,
if it needs nothing else, or they join, or it cuts a piece of a large chunk.

dask fuses chains, but for those that it comes upon from the side: a task that joins small pieces of
other chunks stays apart from the one that computes with what it joined. Where the same kernel can
read the pieces where they are, the joined chunk is then never made: see `gpusched.plan.unjoined`.

Where arrays of different chunks meet, dask cuts large chunks into small ones, a task each, and
another task computes with the piece and with others like it. xarray's groups of days come so: as
many pieces as days. Cutting is a view, so whoever takes the piece may as well cut it: 360 days of
100 x 100 float32, cut from 12 chunks, were 372 tasks rather than 732, in two thirds of the
processor time. Where the chunks of a daily anomaly are persisted, so that it stays in pieces (see
`gpusched.graph.passes.unsplitting`), it is 336 tasks rather than 959. What is chosen by integers,
such as the means of these days' months, is read in place by the kernel that takes it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from dask.array.core import concatenate3, concatenate_shaped

from gpusched.adapters.arrays import concatenate_arrays
from gpusched.adapters.tasks import Alias, DataNode, Task
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.passes.table import ANNOTATED, KnownBytes, Table
from gpusched.graph.subgraph import fused_into, made_of, result_key, settled
from gpusched.plan.grids import is_join
from gpusched.record.catalogue import has
from gpusched.roles import cluster_threads

NEEDED = GraphBreak.READ_WHOLE("joined chunks that functions need which are not recorded")


def without_names(table: Table) -> Table:
    """Return a graph in which tasks have one key only.

    Tasks that dask has fused get the key of their result, which names the layer.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Alias, Task, TaskRef
    >>> from gpusched.graph.passes.chains import without_names
    >>> from gpusched.graph.passes.table import Table
    >>> tasks = [Task("x", abs, -1), Alias("y", "x"), Alias("z", "y"), Task("a", abs, TaskRef("z"))]
    >>> without_names(Table({node.key: node for node in tasks}, ["a"])).tasks
    {'x': <Task 'x' abs(-1)>, 'a': <Task 'a' abs(TaskRef('x'))>}
    """
    tasks, asked = table.tasks, set(table.wanted)
    names: dict[Any, Any] = {}
    own = set()
    for key, node in tasks.items():
        if type(node) is Alias:
            target = tasks.get(node.target)
            if type(target) is Task and target.key not in asked and result_key(target) == key:
                names[target.key] = key
                own.add(key)
            elif key not in asked and node.target != key:
                names[key] = node.target
    if not names:
        return table
    names = settled(names)
    result = {}
    for key, node in tasks.items():
        if type(node) is Alias and (key in names or key in own):
            continue
        name = names.get(key, key)
        used = {other: names[other] for other in node.dependencies if other in names}
        result[name] = node.substitute(used, key=name) if used or name != key else node
    return replace(table, tasks=result)


def without_links(table: Table, joins: bool = False) -> Table:
    """Return a graph without tasks that can be part of the only task that needs them.

    Parameters
    ----------
    table
        The graph.
    joins
        Whether tasks that join chunks become part of one that needs others beside, too, if it
        computes with functions that are recorded.

    Examples
    --------
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.passes.chains import without_links
    >>> from gpusched.graph.passes.table import Table
    >>> tasks = [Task("x", abs, -1), Task("y", abs, -2), Task("a", abs, TaskRef("both")),
    ...          Task("both", max, TaskRef("x"), TaskRef("y"))]
    >>> found = without_links(Table({node.key: node for node in tasks}, ["a"])).tasks
    >>> sorted(found), sorted(found["a"].dependencies)
    (['a', 'x', 'y'], ['x', 'y'])
    """
    tasks, users, sizes = table.tasks, table.users, table.sizes
    forms, asked = table.forms, {*table.wanted, *table.items}
    inside: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, node in tasks.items():
        if not node.dependencies:
            continue
        needed = [k for k in node.dependencies if users[k] == 1 and k not in asked and k in tasks]
        # Data and other names of results are no tasks, and what one of several operands takes time
        # for is computed beside the others: nothing is refused there.
        needed = [k for k in needed if type(tasks[k]) is Task] if type(node) is Task else []
        if len(node.dependencies) > 1:
            needed = [k for k in needed if joins and forms.answer(_joins, tasks[k])]
        for k in needed:
            reason: Reason | None = None
            if sizes.is_annotated(node) or sizes.is_annotated(tasks[k]):
                reason = ANNOTATED
            elif len(node.dependencies) > 1 and not table.is_worthwhile(node):
                reason = NEEDED
            if reason is None:
                inside[key].append(k)
            elif joins:  # The last time that this pass goes over a graph.
                table.note("chain", reason)
    return table.with_inside(inside)


def _joins(task: Task) -> bool:
    """Return whether a task joins chunks, and does nothing else but cut them."""
    called = [each for each in made_of(task) if type(each) is not Alias]
    joins = [type(each) is Task and is_join(each.func) for each in called]
    return any(joins) and all(j or cuts(each) for j, each in zip(joins, called, strict=True))


def absorbed(table: Table, largest: int) -> Table:
    """Return a graph in which small tasks cut their own pieces of large chunks.

    Parameters
    ----------
    table
        The graph.
    largest
        Bytes of a small chunk at most; 0 for no such tasks at all.

    Notes
    -----
    A large chunk is then kept until the last of these tasks has run, so it must be one whose pieces
    would together keep as many bytes. No task takes two large chunks that did not before: it still
    runs where its large chunk is. Pieces that are not small are cut by their tasks where each
    thread of a cluster has a large chunk: a task that computes for long may have to run where its
    chunk is not. Each task and each edge is looked at a constant number of times.
    """
    if not largest:
        table.note("absorb", OFF)
        return table
    return _Absorbing(table, largest).run()


PART = 2
"""How many times as large as a piece that is not small a large chunk must be, and how many times as
much of what is not a large chunk may be sent for it."""

OFF = GraphBreak.FEW_TASKS("gpusched.batching.chunk-bytes is 0")
KEPT = GraphBreak.KEPT("a chunk that is larger than the pieces which are cut off it")
SEVERAL = GraphBreak.KEPT("pieces of several large chunks, each of which may be elsewhere")
LARGE = GraphBreak.LARGE("pieces of more than half of a chunk")
FEW = GraphBreak.FEW_CHUNKS("fewer large chunks than threads")
NOT_RECORDED = GraphBreak.NO_KERNEL("functions that are not recorded")


class _Absorbing:
    def __init__(self, table: Table, largest: int) -> None:
        self._table = table
        self._tasks = table.tasks
        self._wanted = set(table.wanted)
        self._largest = largest
        self._large: dict[Any, list[Any]] = {}
        """By a piece's key: the large chunks that it is cut from."""
        self._nbytes = KnownBytes(table)
        self._spread = True
        """Whether there is a large chunk for each thread of a cluster."""

    def run(self) -> Table:
        self._find_pieces()
        if not self._large:
            return self._table
        chunks = {other for large in self._large.values() for other in large}
        self._spread = len(chunks) >= cluster_threads()
        return self._table.with_inside({
            key: self._taken(node)
            for key, node in self._tasks.items()
            if key not in self._large and type(node) is Task
        })  # fmt: skip

    def _find_pieces(self) -> None:
        """Note the pieces that may be cut elsewhere."""
        cut: defaultdict[Any, int] = defaultdict(int)
        for key, node in self._tasks.items():
            if self._is_piece(key, node):
                bound = self._bound(key)
                self._large[key] = [k for k in node.dependencies if self._nbytes[k] > bound]
                for other in self._large[key]:
                    cut[other] += self._nbytes[key]
        for key, large in list(self._large.items()):
            if any(cut[k] < self._nbytes[k] and not self._stays(k) for k in large):
                self._table.note("absorb", KEPT)
                del self._large[key]

    def _bound(self, key: Any) -> int:
        """Return the bytes that whoever makes a chunk may take without taking a large one."""
        nbytes = self._nbytes[key]
        return self._largest if nbytes <= self._largest else PART * nbytes

    def _is_piece(self, key: Any, node: Any) -> bool:
        single = type(node) is Task and self._table.users[key] == 1 and key not in self._wanted
        # What makes data cuts no piece of a chunk.
        if not single or node.data_producer or not self._table.forms.answer(cuts, node):
            return False
        return self._may_move(node)

    def _may_move(self, node: Task) -> bool:
        """Return whether a task may be part of another one, or have pieces cut; note why not."""
        reason = self._table.why_fixed(node)
        if reason is None and not self._nbytes[node.key]:
            reason = self._table.unknown("chunks", [node.key])
        if reason is not None:
            self._table.note("absorb", reason)
        return reason is None

    def _taken(self, node: Task) -> list[Any]:
        """Return the keys of the pieces that a task may cut itself."""
        found: list[Any] = []
        large: set[Any] = set()
        bound = self._bound(node.key)
        for key in node.dependencies:
            if key in self._large:
                found.append(key)
                large.update(self._large[key])
            elif self._nbytes[key] > bound:
                large.add(key)
        if not found or not self._may_move(node):
            return []
        if not self._table.is_worthwhile(node):
            self._table.note("absorb", NOT_RECORDED)
            return []
        if not large and all(map(self._is_repeated, found)):
            return found
        if len(large) != 1:
            self._table.note("absorb", SEVERAL)
            return []
        largest = max(self._nbytes[each] for each in (node.key, *found))
        (chunk,) = large
        small = largest <= self._largest
        if small or (self._spread and largest * PART <= self._nbytes[chunk]):
            return found
        self._table.note("absorb", LARGE if self._spread else FEW)
        return []

    def _is_repeated(self, piece: Any) -> bool:
        """Return whether a task takes more than there is: what it takes it of is sent for less."""
        return sum(self._nbytes[k] for k in self._tasks[piece].dependencies) <= self._nbytes[piece]

    def _stays(self, key: Any) -> bool:
        """Return whether a chunk is kept whatever is done: as data, or as a cluster's result."""
        return key not in self._tasks or type(self._tasks[key]) is DataNode


def cuts(task: Task) -> bool:
    """Return whether a task does no more than take a piece of a chunk."""
    called = (each for each in made_of(task) if type(each) is not Alias)
    return all(type(each) is Task and has(each.func, "cuts") for each in called)


def calls_join(node: Any) -> bool:
    """Return whether a task is a call of a function by which dask joins chunks."""
    function = node.func if type(node) is Task else None
    return (
        function is concatenate3 or function is concatenate_shaped or function is concatenate_arrays
    )


def has_join_inside(node: Any) -> bool:
    """Return whether a task that joins chunks is fused with others."""
    return bool(fused_into(node)) and any(map(calls_join, made_of(node)))
