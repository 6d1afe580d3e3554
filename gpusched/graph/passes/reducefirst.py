"""Reductions of joined chunks -> of the chunks themselves, whose results dask's last step joins.

Elements that are chosen along an axis, as those of a group, and what is put together in larger
chunks, are joined by dask before a function sees them. A reduction along that axis need not wait
for it: dask joins what its first step leaves of chunks anyway. So nothing is joined, chunks are
reduced where they are, and a cluster sends results instead of elements. Means of ten chunks' months
were 133 tasks, which took each element, joined it, and read it: now each chunk is read once, by one
of 23 tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from dask.array import chunk, reductions
from dask.array.core import concatenate3, concatenate_shaped

from gpusched.adapters.arrays import concatenate_arrays, nanmax_skip, nanmin_skip
from gpusched.adapters.tasks import Task, TaskRef, is_list
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.graph.functions.independence import Divided, results
from gpusched.graph.functions.lonejoins import as_joined, only_part
from gpusched.graph.functions.partials import bare
from gpusched.graph.functions.reductionsteps import Step, step_of, steps_after, with_results
from gpusched.graph.passes.chains import calls_join, has_join_inside
from gpusched.graph.passes.reductiontrees import parted
from gpusched.graph.passes.sizes import Plain, Sized
from gpusched.graph.passes.table import Table, block_of, drop, key_of
from gpusched.graph.passes.taking import Lengths, taken_by
from gpusched.graph.subgraph import (
    key_of_argument,
    last_task,
    layer_of,
    leaves,
    made_of,
    references,
)

LEFT = 2
"""How many times as large what is joined must be as what a reduction leaves of its parts."""

NO_GAIN = GraphBreak.NO_GAIN("what a reduction leaves of parts is hardly less than they are")
NEEDED = GraphBreak.KEPT("small chunks that other tasks need, too, besides a reduction of them")
ROUNDED = GraphBreak.DTYPE("parts of float16, whose sums would be rounded")
EMPTY = GraphBreak.NO_SIZE("parts of a joined chunk that may be empty")
OTHERS = GraphBreak.FORM("results of chunks that dask's own steps of the reduction do not join")

_OF_NONE = (chunk.min, chunk.max, reductions.chunk_min, reductions.chunk_max, nanmin_skip,
            nanmax_skip)  # fmt: skip
"""First steps whose result has no axes where a chunk is empty, or which raise there."""


def reduced_first(table: Table, least: int) -> Table:
    """Return a graph in which chunks are reduced before they are joined, rather than after.

    Parameters
    ----------
    table
        The graph.
    least
        Bytes from which on a chunk is worth a task of its own.

    Notes
    -----
    A reduction along the axes of a join has the same terms then, in another order, and with another
    grouping, as where dask had left the chunks apart. All that is between the join and the first
    step computes each position of these axes alone. The steps after it are dask's own, which take
    however many results: each has length 1 along the reduction's axes. Parts that need not be
    arrays of NumPy's are made what the join makes of them.

    There are as many tasks as before: a task that takes elements becomes the one that reduces them,
    and large chunks have one more each. No task holds more than before: results of parts, which are
    less than half of the parts, instead of these. Each task and each edge is looked at a constant
    number of times.
    """
    return _ReducingFirst(table, least).run()


@dataclass(frozen=True)
class _Parts:
    """A reduction of what is joined, and what does the same with the parts."""

    key: Any
    """Of the first step, and of the task that ends with it."""
    steps: tuple[Any, ...]
    """Those that can take the results."""
    axes: tuple[int, ...]
    made: tuple[Any, ...]
    """What is done instead, for each part."""


class _ReducingFirst:
    def __init__(self, table: Table, least: int) -> None:
        self._table = table
        self._tasks = table.tasks
        self._wanted = {*table.wanted, *table.items}
        self._least = least
        self._sized = Sized(self._tasks)
        self._plain = Plain(self._tasks)

    def run(self) -> Table:
        found: dict[Any, _Parts] = {}
        owners = set()
        answer = self._table.forms.answer
        for key, node in self._tasks.items():
            joins = type(node) is Task and answer(has_join_inside, node)
            if joins and any(map(steps_after, made_of(node))):
                parts = self._parts(node)
                if parts is not None:
                    found[parts.key] = parts
                    owners.add(key)
        if not found:
            return self._table
        near = {k for k, node in self._tasks.items() if not owners.isdisjoint(node.dependencies)}
        self._tasks = parted(self._table, owners | near).tasks
        users: dict[Any, list[Any]] = {}
        for key, node in self._tasks.items():
            for other in found.keys() & node.dependencies:
                users.setdefault(other, []).append(key)
        steps = {k: step_of(self._tasks[k]) for k in set(chain.from_iterable(users.values()))}
        fitting = [
            each for each in found.values()
            if self._is_joined(each, [steps[k] for k in users.get(each.key, ())])
        ]  # fmt: skip
        if len(fitting) < len(found):
            self._table.note("reduce", OTHERS, len(found) - len(fitting))
        return self._rewritten(fitting, users) if fitting else self._table

    # What can be reduced first ------------------------------------------------------------------

    def _parts(self, node: Task) -> _Parts | None:
        """Return what a task does that joins chunks and reduces them; None if it does not."""
        if self._joins_needed(node):
            return None
        flat = self._table.inside(node)
        if flat is None:
            return None
        inner = flat[0]
        counts = Counter(chain.from_iterable(map(references, inner.values())))
        for each in inner.values():
            if calls_join(each):
                path = _path(each, inner, counts)
                if path is not None:
                    reason = self._table.why_fixed(node)
                    found = self._divided(path, inner) if reason is None else reason
                    if isinstance(found, _Parts):
                        return found
                    self._table.note("reduce", found)
        return None

    def _joins_needed(self, node: Task) -> bool:
        """Return whether a task joins small chunks that others need, too, before it reduces them.

        Nothing has to be taken apart to know that.
        """
        inner, _, names, *given = node.args
        outer = dict(zip(names, given, strict=True))
        if not steps_after(last_task(node)):
            return False
        joins = [parts for each in inner.values() if calls_join(each) and (parts := _joined(each))]
        keys = [key_of_argument(outer.get(k)) for parts in joins for k in parts.keys]
        found = len(joins) == 1 and any(
            k is not None
            and not self._is_alone(k)
            and (self._table.nbytes(k) or self._least) < self._least
            for k in keys
        )
        if found:
            self._table.note("reduce", NEEDED)
        return found

    def _divided(self, path: list[Task], inner: Mapping[Any, Any]) -> Any:
        """Return what is done with each part instead of a join, and of all up to a first step.

        Or the reason why that is not done.
        """
        join, first = path[0], path[-1]
        parts = _joined(join)
        axes = first.kwargs["axis"]
        if parts is None or not set(parts.along) <= set(axes):
            return OTHERS
        if not inner.keys().isdisjoint(parts.keys):
            return OTHERS
        shapes = [self._shape(key, parts.along) for key in parts.keys]
        known = [each for each in shapes if each is not None]
        ndim = parts.ndim if parts.ndim is not None else len(known[0][1]) if known else 0
        if len(known) < len(shapes) or any(len(shape) != ndim for _, shape in known):
            return self._table.unknown("parts of a joined chunk", parts.keys)
        told = [self._table.sizes.lengths({}, each.key) for each in path]
        itemsizes = {size for size, _ in (*known, *filter(None, told))}
        # Each of several sums of float16 would be rounded.
        if 2 in itemsizes:
            return ROUNDED
        if bare(first.func) in _OF_NONE and (
            any(0 in shape for _, shape in known) or not self._sized(parts.keys)
        ):
            return EMPTY
        itemsize = max(itemsizes)
        divided = Divided(ndim, parts.along)
        for before, each in pairwise(path[:-1]):
            inside = results(each, {before.key: divided})
            if inside is None or inside.get(each.key) != divided:
                return OTHERS
        sizes = [size * math.prod(shape) for size, shape in known]
        alone = [self._is_alone(key) for key in parts.keys]
        if not all(one or size >= self._least for one, size in zip(alone, sizes, strict=True)):
            return NEEDED
        made = []
        left = 0
        for number, (part, (_, shape)) in enumerate(zip(parts.keys, known, strict=True)):
            steps = self._steps(path, part, number, itemsize, shape)
            left += self._table.sizes.of_first_step(steps[-1]) or 0
            made.append(Task.fuse(*steps) if len(steps) > 1 else steps[0])
        if left * LEFT > sum(sizes):
            return NO_GAIN
        return _Parts(first.key, steps_after(first), axes, tuple(made))

    def _steps(self, path: list[Task], part: Any, number: int, itemsize: int,
               shape: Lengths) -> list[Task]:  # fmt: skip
        """Return what is done with a part, and note how large it is."""
        found: list[Task] = []
        before = part

        def named(task: Task) -> Any:
            block = (*block_of(task.key), number)
            key = key_of("parts", task.key, layer_of(task.key), block)
            self._table.sizes.add(key[0], itemsize, shape)
            return key

        if not self._plain([part]):
            join, before = path[0], named(path[0])
            along = join.func is concatenate_arrays
            made = (only_part, (join.args[2],)) if along else (as_joined, len(shape))
            found.append(Task(before, made[0], TaskRef(part), made[1]))
        for one, each in pairwise(path):
            key = named(each)
            found.append(each.substitute({one.key: before}, key=key))
            before = key
        return found

    def _shape(self, key: Any, along: tuple[int, ...]) -> tuple[int, Lengths] | None:
        """Return the bytes of an element of a part, and how long it is; None if not known."""
        taken = taken_by(self._tasks.get(key), self._tasks, self._lengths)
        source = key if taken is None else taken[0].source
        found = self._table.sizes.lengths(self._tasks, source)
        if found is None or taken is None:
            return found
        lengths = list(taken[0].lengths)
        lengths[taken[0].axis] = sum(len(each.positions) for each in taken)
        return found[0], tuple(lengths)

    def _lengths(self, key: Any) -> Lengths | None:
        found = self._table.sizes.lengths(self._tasks, key)
        return None if found is None else found[1]

    def _is_alone(self, key: Any) -> bool:
        """Return whether a part is made by a task that makes it for the join only."""
        node = self._tasks.get(key)
        return (
            type(node) is Task
            and len(node.dependencies) > 0
            and self._table.users[key] == 1
            and key not in self._wanted
            and self._table.why_fixed(node) is None
        )

    # What takes the results ---------------------------------------------------------------------

    def _is_joined(self, parts: _Parts, steps: Collection[Step | None]) -> bool:
        """Return whether nothing but dask's own steps takes what a first step returns."""
        return (
            parts.key not in self._wanted
            and len(steps) > 0
            and all(
                step is not None and step.takes(parts.key, parts.steps, parts.axes)
                for step in steps
            )
        )

    def _rewritten(self, found: list[_Parts], users: Mapping[Any, list[Any]]) -> Table:
        tasks = dict(self._tasks)
        instead: dict[Any, dict[Any, list[Any]]] = {}
        for parts in found:
            del tasks[parts.key]
            tasks.update((task.key, task) for task in parts.made)
            for user in users[parts.key]:
                instead.setdefault(user, {})[parts.key] = [task.key for task in parts.made]
        for key, several in instead.items():
            tasks[key] = with_results(tasks[key], several)
        given = chain.from_iterable(self._tasks[parts.key].dependencies for parts in found)
        drop(tasks, given, self._wanted)  # The order in which elements would have been joined.
        return replace(self._table, tasks=tasks)


@dataclass(frozen=True)
class _Join:
    """What a task joins."""

    keys: list[Any]
    ndim: int | None
    """How many axes it has, if the task says so."""
    along: tuple[int, ...]
    """The axes along which there are several parts."""


def _joined(task: Task) -> _Join | None:
    """Return what a task joins that dask has made; None if it is of another form."""
    if task.kwargs or not is_list(task.args[0]):
        return None
    items = list(leaves(task.args[0]))
    keys = [key_of_argument(each) for _, each in items]
    if len(keys) < 2 or None in keys:
        return None
    depth = {len(place) for place, _ in items}
    shape = [1 + max(along) for along in zip(*(place for place, _ in items), strict=False)]
    if len(depth) > 1 or len(items) != math.prod(shape):
        return None
    if task.func is concatenate3:
        return _Join(keys, len(shape), tuple(k for k, n in enumerate(shape) if n > 1))
    if len(shape) != 1:
        return None
    if task.func is concatenate_shaped:
        ndim = len(task.args[1])
        return _Join(keys, ndim, tuple(k for k, n in enumerate(task.args[1]) if n > 1))
    axis = task.args[2]
    return None if type(axis) is not int or axis < 0 else _Join(keys, None, (axis,))


def _path(join: Task, inner: Mapping[Any, Any], counts: Mapping[Any, int]) -> list[Task] | None:
    """Return a join and what is called with its result alone, up to a reduction's first step."""
    users = {key: each for each in inner.values() for key in references(each)}
    found = [join]
    while counts[found[-1].key] == 1:
        user = users[found[-1].key]
        if type(user) is not Task or user.dependencies != {found[-1].key}:
            return None
        found.append(user)
        if steps_after(user):
            return found
    return None
