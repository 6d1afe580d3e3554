"""Tasks on the same chunk -> one task, so that what they share is read or computed once.

dask fuses chains: an array that two others are made of stays a task of its own, whose chunks are
written and read again. Here elementwise tasks of one chunk, and reductions along axes of which it
has all, are put together whatever their number of users, and so are the first steps of several
reductions of one chunk. The results that others need become items of one task's result, and those
who need small ones take them out themselves. A softmax of eight chunks is 20 tasks rather than 45.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from operator import getitem
from typing import Any

from gpusched import config
from gpusched.adapters.tasks import Alias, DataNode, Task, TaskRef, execute_subgraph
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.functions.known import together
from gpusched.graph.functions.reductionsteps import is_first_step, reduces
from gpusched.graph.passes.chains import cuts
from gpusched.graph.passes.recomputing import is_light
from gpusched.graph.passes.table import SMALL, KnownBytes, Table, block_of, key_of
from gpusched.graph.subgraph import depth_first, fused_into, last_task, layer_of, operands
from gpusched.quantities import read_bytes
from gpusched.roles import cluster_threads, threads


def merged(table: Table, least: int) -> Table:
    """Return a graph in which tasks on the same chunk are one.

    Parameters
    ----------
    table
        The graph.
    least
        Bytes of a chunk from which on its tasks are put together.

    Notes
    -----
    A group of tasks has a level, and all that comes into it comes from lower levels: so groups form
    no cycle. No chunk is kept for longer than dask would keep it: a group leaves at most one large
    chunk to tasks outside, besides results that were asked for. Each task and each edge is looked
    at a constant number of times.
    """
    reason = table.why_small(least)
    if reason is not None:
        table.note("merge", reason)
        return table
    return _Merging(table, least).run()


def merge_bytes() -> int:
    """Return the bytes of a chunk from which on the configuration has its tasks put together.

    Raises
    ------
    ValueError
        If the setting is not a number of bytes.
    """
    return read_bytes("gpusched.fusion.merge-bytes", config.get("fusion.merge-bytes") or 0)


SHARE = 8
"""How many times as large as results of a chunk the chunk must be, for these to be kept together
until the last one has been taken, where each is taken by a task that needs it."""

FEW = GraphBreak.FEW_CHUNKS("fewer chunks than threads")
FEW_COMPUTE = GraphBreak.NO_GAIN("fewer than two tasks of a chunk that compute")
LATER = GraphBreak.KEPT("tasks of one chunk that come after others, or are of other places")
VIEW = GraphBreak.NO_GAIN("a large view, which those who take it make best")
JOINED = GraphBreak.REDUCTION("reductions of one chunk that are not dask's own")
NOT_RECORDED = GraphBreak.NO_KERNEL("functions that are neither recorded nor known as quick")
KEPT = GraphBreak.KEPT("several large results, which are let go of one by one")


class _Group:
    """Tasks that become one, or one that stays alone."""

    __slots__ = ("block", "level", "members", "open")

    def __init__(self, level: int, block: Any, key: Any, opened: bool | None) -> None:
        self.level = level
        self.block = block
        self.members = [key]
        self.open = opened
        """Whether others may join it; None where nobody has asked yet."""


class _Merging:
    def __init__(self, table: Table, least: int) -> None:
        self._table = table
        self._tasks = table.tasks
        self._wanted = wanted = set(table.wanted)
        self._least = least
        self._spread = bool(cluster_threads())
        self._operands: dict[Any, list[Any]] = {}
        self._users: defaultdict[Any, list[Any]] = defaultdict(list)
        self._layers: dict[str, int] = {}
        """By name: the order in which results need them."""
        self._of: dict[Any, _Group] = {}
        self._readers: dict[Any, Any] = {}
        """By chunk, level and block: a task of the group that takes it already."""
        self._nbytes = KnownBytes(table)
        self._held = wanted | table.held
        """Keys of the chunks that stay until the end, whatever is done."""

    def run(self) -> Table:
        for key in depth_first([*self._table.wanted, *self._tasks], self._note):
            self._layers.setdefault(layer_of(key), len(self._layers))
            self._place(key)
        groups = {id(g): g for g in self._of.values() if len(g.members) > 1}.values()
        readers = Counter(chunk for chunk, _, _ in self._readers)
        later = sum(n > 1 and self._nbytes[chunk] >= self._least for chunk, n in readers.items())
        if later:
            self._table.note("merge", LATER, later)
        found = []
        for group in groups:
            members = self._worth_it(self._sequence(group.members))
            if members:
                found.append(members)
        # One chunk a thread at least, or merging would leave threads without work.
        if len(found) < threads():
            if found:
                self._table.note("merge", FEW, len(found))
            return self._table
        result = dict(self._tasks)
        for members in found:
            for key in members:
                del result[key]
        items: list[Any] = []
        for members in found:
            made = self._one(members, result)
            result.update(made)
            items += self._small(made, members)
        return self._table.with_items(result, items)

    def _small(self, made: Mapping[Any, Any], members: list[Any]) -> list[Any]:
        """Return the keys of the items of a result that is small as a whole.

        Where nothing is sent, that is a small part of the chunk that it is computed of.
        """
        items = [key for key in made if key in self._operands]
        sizes = [self._table.nbytes(key) for key in items]
        most = self._least
        if not self._spread:
            given = (self._nbytes[k] for key in members for k in self._operands[key])
            most = max(most, max(given, default=0) // SHARE)
        small = None not in sizes and sum(filter(None, sizes)) <= most
        return items if len(items) > 1 and small else []

    # Groups -------------------------------------------------------------------------------

    def _note(self, key: Any) -> list[Any]:
        """Note what a task depends on, and return which of it are tasks."""
        found = self._operands[key] = operands(self._tasks[key])
        for other in found:
            self._users[other].append(key)
        return [other for other in found if other in self._tasks]

    def _sequence(self, members: list[Any]) -> list[Any]:
        """Return a group's tasks in an order that is the same for all chunks and whatever data.

        Kernels differ with it.
        """
        inside = set(members)
        outputs = sorted(self._outputs(members), key=lambda key: self._layers[layer_of(key)])
        return depth_first(outputs, lambda key: [k for k in self._operands[key] if k in inside])

    def _place(self, key: Any) -> None:
        operands, block = self._operands[key], block_of(key)
        if type(self._tasks[key]) is DataNode:
            self._of[key] = _Group(-1, block, key, opened=False)
            return
        if not operands:
            self._of[key] = _Group(0, block, key, opened=None)
            return
        before = [self._of[k] for k in operands if k in self._of]
        level = max([g.level for g in before], default=-1)
        top = list({id(g): g for g in before if g.level == level}.values())
        able = self._able(key, operands)
        group: _Group | None = None
        joins = able and top and not reduces(self._tasks[key])
        if joins and all(map(self._is_open, top)):
            alike = all(g.block == block for g in top)
            if len(top) == 1 or alike:
                group = self._joined(top, key)
        if group is None:
            if able and not self._is_large(key, operands):
                able = False
                self._note_apart(SMALL, operands)
            group = self._sibling(operands, level + 1, block) if able else None
            if group is None:
                group = _Group(level + 1, block, key, able)
            else:
                group.members.append(key)
        self._of[key] = group
        if group.open:
            for other in operands:
                if self._of.get(other) is not group:
                    self._readers[other, group.level, group.block] = key

    def _is_open(self, group: _Group) -> bool:
        """Return whether a task may join a group, which is looked at when the first one would."""
        if group.open is None:
            (key,) = group.members
            group.open = self._able(key, []) and self._is_large(key, [])
        return group.open

    def _joined(self, groups: list[_Group], key: Any) -> _Group:
        """Return one group of several of the same level, with the task in it."""
        largest = max(groups, key=lambda g: len(g.members))
        for group in groups:
            if group is not largest:
                for member in group.members:
                    self._of[member] = largest
                largest.members += group.members
                group.members = []
        largest.members.append(key)
        return largest

    def _sibling(self, operands: list[Any], level: int, block: Any) -> _Group | None:
        """Return a group of the same chunk that takes one of these chunks, too."""
        readers = (self._readers.get((other, level, block)) for other in operands)
        return next((self._of[key] for key in readers if key is not None), None)

    def _able(self, key: Any, operands: list[Any]) -> bool:
        """Return whether a task calls nothing but what is recorded, or takes no time."""
        node = self._tasks[key]
        if type(node) is not Task:
            return type(node) is Alias and key not in self._wanted
        table = self._table
        reason = table.why_fixed(node)
        if reason is None and not table.forms.answer(_joins_one, node):
            # A loop that computes much and joins several results is slower than a loop for each.
            reason = JOINED
        elif reason is None and not table.is_recorded(node):
            reason = NOT_RECORDED
        if reason is not None:
            self._note_apart(reason, operands)
        return reason is None

    def _note_apart(self, reason: Reason, operands: list[Any]) -> None:
        """Note why a task stays apart from others that read the same large chunk, if any do."""
        users = self._table.users
        if any(users[k] > 1 and self._nbytes[k] >= self._least for k in operands):
            self._table.note("merge", reason)

    def _is_large(self, key: Any, operands: Iterable[Any]) -> bool:
        return any(self._nbytes[k] >= self._least for k in (key, *operands))

    # What becomes of them -----------------------------------------------------------------

    def _worth_it(self, members: list[Any]) -> list[Any]:
        """Return the tasks of a group that become one; none if that gains nothing."""
        inside = set(members)
        for key in reversed(members):
            # A large view is best made by those who take it.
            used = self._computes(key) or not inside.isdisjoint(self._users[key])
            if not used and self._nbytes[key] >= self._least:
                inside.remove(key)
                self._table.note("merge", VIEW)
        members = [key for key in members if key in inside]
        if sum(map(self._computes, members)) < 2:
            self._table.note("merge", FEW_COMPUTE)
            return []
        left = [k for k in self._outputs(members) if k not in self._held]
        if sum(self._nbytes[k] >= self._least for k in left) > 1:
            self._table.note("merge", KEPT)
            return []
        return members

    def _computes(self, key: Any) -> bool:
        node = self._tasks[key]
        return type(node) is Task and self._table.is_worthwhile(node)

    def _outputs(self, members: list[Any]) -> list[Any]:
        inside = set(members)
        return [k for k in members if k in self._wanted or not inside.issuperset(self._users[k])]

    def _one(self, members: list[Any], others: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return the task that does what these do, and those that take its results apart."""
        outputs = self._outputs(members)
        inner = self._inner(members)
        inside = set(members)
        given = dict.fromkeys(k for key in members for k in self._operands[key] if k not in inside)
        name, last = outputs[0], outputs[0]
        parts: dict[Any, Any] = {}
        if len(outputs) > 1:
            name = name_of(outputs, block_of(members[0]))
            last = name
            inner[last] = Task(last, together, *map(TaskRef, outputs))
            parts = {k: Task(k, getitem, TaskRef(name), i) for i, k in enumerate(outputs)}
        keys = tuple(given)
        whole = Task(name, execute_subgraph, inner, last, keys, *map(TaskRef, keys))
        assert name not in others, name
        return {name: whole, **parts}

    def _inner(self, members: list[Any]) -> dict[Any, Any]:
        """Return some tasks by key, or those inside where several compute one again: once here."""
        inner = {key: self._tasks[key] for key in members}
        names = [name for node in inner.values() for name in fused_into(node)]
        if len(set(names)) == len(names):
            return inner
        parts: dict[Any, Any] = {}
        for key, node in inner.items():
            flat = self._table.inside(node)
            parts.update({key: node} if flat is None else flat[0])
        return parts


def _joins_one(node: Task) -> bool:
    """Return whether a task reduces nothing, or does so first with a chunk or what it cuts off.

    Or with what it computes of the chunk in no more time than it takes to read that.
    """
    if not reduces(node):
        return True
    last = last_task(node)
    if last is None or not is_first_step(last):
        return False
    before = fused_into(node).values()
    return all(each is last or cuts(each) or is_light(each) for each in before)


def name_of(outputs: list[Any], block: Any) -> Any:
    """Return a key for tasks with these results in this order, with one name for all chunks alike.

    Another graph may ask for the same results in another order, at the same time on a cluster.
    """
    layers = [str(key[0] if type(key) is tuple else key) for key in outputs]
    # Seen from the first one's: results of fewer axes have shorter ones, other in each chunk.
    spread = [str(_seen_from(block, block_of(key))) for key in outputs]
    return key_of("merged", outputs[0], (layers, spread if len(block) else ()), block)


def _seen_from(block: Any, other: Any) -> tuple[Any, ...]:
    """Return where a block is, seen from another one.

    Examples
    --------
    >>> from gpusched.graph.passes.merging import _seen_from
    >>> _seen_from((3, 0), (3,)), _seen_from((3,), (4, 2))
    ((0,), (1, 2))
    """
    near = tuple(
        there - here if type(here) is type(there) is int else there
        for here, there in zip(block, other, strict=False)
    )
    return (*near, *other[len(near) :])
