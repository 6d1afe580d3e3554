"""Pieces of one large chunk, each combined with elements taken of another -> one task for all.

Where an array of large chunks meets elements that were taken of a small one, as in xarray's
``groups - means``, dask cuts the large chunks as small as what was taken: into as many pieces as
there are months of data, or days. Here one task takes all elements that go with a large chunk, and
computes with the whole. Its result is parted into the arrays that dask has asked for.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef, _execute_subgraph
from dask.system import CPU_COUNT
from dask.utils import key_split

from gpusched.adapters.arrays import take
from gpusched.graph.cutting import cuts_of
from gpusched.graph.merging import Merged, gathers
from gpusched.graph.partials import bare
from gpusched.graph.pieces import is_elementwise
from gpusched.graph.quick import QUICK
from gpusched.graph.rewrite import called, enforces
from gpusched.graph.sizes import Sizes
from gpusched.graph.subgraph import walk

FEWEST = 4
"""Pieces that are worth a task for all of them."""

SHARE = 4
"""How many times as large as all that elements are taken of the results must be, if that lies in
several chunks, which are put together for it."""


def parted(whole: Any, axis: int, lengths: tuple[int, ...]) -> tuple[Any, ...]:
    """Return parts of an array that follow each other along an axis; views of it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.rejoining import parted
    >>> parted(np.arange(3), 0, (1, 2))
    (array([0]), array([1, 2]))
    """
    before = (slice(None),) * axis
    edges = accumulate(lengths, initial=0)
    return tuple(whole[(*before, slice(start, stop))] for start, stop in pairwise(edges))


setattr(parted, QUICK, True)


def rejoined(tasks: dict[Any, Any], wanted: Collection[Any], sizes: Sizes) -> Merged:
    """Return a graph in which one task computes with many pieces of a chunk.

    Parameters
    ----------
    tasks
        dask's nodes by key, optimised.
    wanted
        Keys of the results: they stay keys.
    sizes
        Of the chunks.

    Notes
    -----
    The results of a task are views of one array, which is as large as what is cut off the large
    chunk, and is kept until the last of them has been used. Each task and each edge is looked at a
    constant number of times.
    """
    if sizes.annotated:
        return Merged(tasks)
    return _Rejoining(tasks, set(wanted), sizes).run()


class _Foreign(Exception):
    """A task that does something else."""


class _Piece(NamedTuple):
    large: Any
    """Key of the chunk that it is cut off."""
    index: tuple[slice, ...]


class _Taken(NamedTuple):
    source: Any
    """Key of the chunk that elements are taken of."""
    index: tuple[Any, ...]
    """Slices that leave axes as they are, and an array of positions along one axis."""
    axis: int

    @property
    def places(self) -> np.ndarray:
        """The positions."""
        return np.asarray(self.index[self.axis])


@dataclass(frozen=True)
class _Member:
    """A task that combines a piece with elements that were taken."""

    key: Any
    node: Task
    start: int
    stop: int
    """Where along the axis the piece lies."""
    leaves: tuple[Any, ...]
    """Keys of what it combines, in the order of their use."""

    @property
    def length(self) -> int:
        """Of its result along the axis."""
        return self.stop - self.start


class _Rejoining:
    def __init__(self, tasks: dict[Any, Any], wanted: set[Any], sizes: Sizes) -> None:
        self._tasks = tasks
        self._wanted = wanted
        self._sizes = sizes
        self._pieces: dict[Any, _Piece] = {}
        self._taken: dict[Any, _Taken] = {}

    def run(self) -> Merged:
        self._find_leaves()
        if not self._pieces or not self._taken:
            return Merged(self._tasks)
        families: defaultdict[Any, list[_Member]] = defaultdict(list)
        for key, node in self._tasks.items():
            if type(node) is Task and self._may_combine(key, node):
                self._sort_in(key, node, families)
        runs = [run for family in families.values() for run in _runs(family)]
        runs = [run for run in runs if self._is_worth_it(run)]
        if not runs:
            return Merged(self._tasks)
        # Each thread finds one at least, or some would be left without work.
        count = -(-CPU_COUNT // len(runs))
        return self._result([part for run in runs for part in _divided(run, count)])

    # What there is ------------------------------------------------------------------------

    def _find_leaves(self) -> None:
        for key, node in self._tasks.items():
            if type(node) is not Task or key in self._wanted or node.data_producer:
                continue
            if node.func is take:
                taken = self._taken_by(node)
                if taken is not None:
                    self._taken[key] = taken
            else:
                cuts = cuts_of(node)
                if len(cuts) == 1 and all(map(_goes_forward, cuts[0][1])):
                    (large,) = node.dependencies
                    self._pieces[key] = _Piece(large, cuts[0][1])

    def _taken_by(self, node: Task) -> _Taken | None:
        source, index = node.args
        if isinstance(index, TaskRef | Alias):
            index = self._tasks.get(index.key if isinstance(index, TaskRef) else index.target)
        if isinstance(index, DataNode):
            index = index.value
        if not isinstance(source, TaskRef) or type(index) is not tuple or len(index) != 2:
            return None
        rows = [k for k, item in enumerate(index[1]) if isinstance(item, np.ndarray)]
        others = [item for item in index[1] if not isinstance(item, np.ndarray)]
        if len(rows) != 1 or not all(type(i) is slice and i == slice(None) for i in others):
            return None
        return _Taken(source.key, index[1], rows[0])

    def _may_combine(self, key: Any, node: Task) -> bool:
        if key in self._pieces or key in self._taken or node.data_producer:
            return False
        needed = node.dependencies
        known = all(k in self._pieces or k in self._taken for k in needed)
        return known and not needed.isdisjoint(self._pieces) and not needed.isdisjoint(self._taken)

    def _sort_in(self, key: Any, node: Task, families: dict[Any, list[_Member]]) -> None:
        """Put a task to others that do the same with the same chunks."""
        leaves: dict[Any, int] = {}
        try:
            form = _form(node, {}, leaves)
        except _Foreign:
            return
        axes = {self._taken[k].axis for k in leaves if k in self._taken}
        ranks = {len((self._taken.get(k) or self._pieces[k]).index) for k in leaves}
        if len(axes) != 1 or len(ranks) != 1:
            return
        (axis,) = axes
        along = {_ends(self._pieces[k].index[axis]) for k in leaves if k in self._pieces}
        lengths = {len(self._taken[k].places) for k in leaves if k in self._taken}
        if len(along) != 1 or lengths != {stop - start for start, stop in along}:
            return
        ((start, stop),) = along
        likeness = tuple(self._likeness(k, axis) for k in leaves)
        families[form, axis, likeness].append(_Member(key, node, start, stop, tuple(leaves)))

    def _likeness(self, key: Any, axis: int) -> Any:
        """Return what of a leaf is the same for all tasks that one can do the work of."""
        piece = self._pieces.get(key)
        if piece is None:
            return None
        return piece.large, tuple(_ends(s) for k, s in enumerate(piece.index) if k != axis)

    def _is_worth_it(self, run: Sequence[_Member]) -> bool:
        if len(run) < FEWEST:
            return False
        results = sum(self._sizes.within(self._tasks, each.key) or 0 for each in run)
        for number in range(len(run[0].leaves)):
            sources = self._sources(run, number)
            if len(sources) > 1:
                (axis,) = {self._taken[each.leaves[number]].axis for each in run}
                told = [self._sizes.lengths(self._tasks, source) for source in sources]
                if any(each is None or each[1][axis] != 1 for each in told):
                    return False
                nbytes = sum(self._sizes.within(self._tasks, source) or 0 for source in sources)
                if nbytes * SHARE > results:
                    return False
        return True

    def _sources(self, run: Sequence[_Member], number: int) -> list[Any]:
        """Return the chunks that elements of a leaf are taken of; none for a piece."""
        keys = [each.leaves[number] for each in run]
        return list(dict.fromkeys(self._taken[k].source for k in keys if k in self._taken))

    # What becomes of it --------------------------------------------------------------------

    def _result(self, runs: list[list[_Member]]) -> Merged:
        result = dict(self._tasks)
        for run in runs:
            result.update(self._one(run))
        self._drop_unused(result)
        items = {each.key for run in runs for each in run} - self._wanted
        for node in result.values():
            if not gathers(node) or type(node) is not Task:
                items.difference_update(node.dependencies)
        return Merged(result, frozenset(items))

    def _drop_unused(self, result: dict[Any, Any]) -> None:
        """Drop the pieces, what was taken, and the positions that nobody asks for any more."""
        users: Counter[Any] = Counter()
        for node in result.values():
            users.update(node.dependencies)
        for key in (*self._pieces, *self._taken):
            if not users[key]:
                needed = result.pop(key).dependencies
                users.subtract(needed)
                for other in needed:
                    if not users[other] and type(result.get(other)) is DataNode:
                        del result[other]

    def _one(self, run: list[_Member]) -> dict[Any, Any]:
        """Return the task for some pieces, and those that take its results apart."""
        first = run[0]
        name = _name(run)
        inner: dict[Any, Any] = {}
        given: dict[Any, None] = {}
        for number, key in enumerate(first.leaves):
            own = f"{name[0]}-{number}"
            made = self._leaf(own, run, number)
            inner.update({node.key: node for node in made})
            given |= dict.fromkeys(k for node in made for k in node.dependencies if k not in inner)
        renamed = {key: f"{name[0]}-{number}" for number, key in enumerate(first.leaves)}
        whole, last = f"{name[0]}-whole", f"{name[0]}-parts"
        (axis,) = {self._taken[key].axis for key in first.leaves if key in self._taken}
        inner[whole] = first.node.substitute(renamed, key=whole)
        lengths = DataNode(None, tuple(each.length for each in run))
        inner[last] = Task(last, parted, TaskRef(whole), axis, lengths)
        task = Task(name, _execute_subgraph, inner, last, tuple(given), *map(TaskRef, given))
        parts = {each.key: Task(each.key, getitem, TaskRef(name), k) for k, each in enumerate(run)}
        return {name: task, **parts}

    def _leaf(self, key: Any, run: Sequence[_Member], number: int) -> Iterator[GraphNode]:
        """Return the tasks that make, for all pieces, what each had by itself."""
        leaf = run[0].leaves[number]
        if leaf in self._pieces:
            large, index = self._pieces[leaf]
            (axis,) = {self._taken[k].axis for k in run[0].leaves if k in self._taken}
            along = slice(run[0].start, run[-1].stop)
            index = (*index[:axis], along, *index[axis + 1 :])
            return iter([Task(key, getitem, TaskRef(large), index)])
        taken = [self._taken[each.leaves[number]] for each in run]
        return iter(self._taking(key, taken, self._sources(run, number)))

    def _taking(self, key: Any, taken: list[_Taken], sources: list[Any]) -> list[GraphNode]:
        found: list[GraphNode] = []
        source, axis = sources[0], taken[0].axis
        if len(sources) > 1:
            # Each has one element along the axis.
            places = np.array([sources.index(e.source) for e in taken for _ in e.places])
            source = f"{key}-sources"
            found.append(Task(source, np.concatenate, List(*map(TaskRef, sources)), axis=axis))
        else:
            places = np.concatenate([each.places for each in taken])
        index = (*taken[0].index[:axis], places, *taken[0].index[axis + 1 :])
        found.append(Task(key, take, TaskRef(source), DataNode(None, (1, index))))
        return found


def _goes_forward(index: Any) -> bool:
    """Return whether an index is a slice of elements side by side, counted from the start."""
    if type(index) is not slice or index.step not in (None, 1):
        return False
    return all(isinstance(end, int | np.integer) and end >= 0 for end in _ends(index))


def _ends(index: slice) -> tuple[Any, Any]:
    return index.start or 0, index.stop


def _form(value: Any, known: dict[Any, Any], leaves: dict[Any, int]) -> Any:
    """Return what a task computes, the same for those that differ in their leaves only."""
    if isinstance(value, TaskRef | Alias):
        key = value.key if isinstance(value, TaskRef) else value.target
        return known[key] if key in known else ("leaf", leaves.setdefault(key, len(leaves)))
    if isinstance(value, DataNode):
        value = value.value
    if type(value) is Task:
        if value.func is _execute_subgraph:
            return walk(value, known, lambda node, inner: _form(node, inner, leaves))
        function, options = called(value)
        if options or not is_elementwise(bare(function)):
            raise _Foreign
        dtype = str(value.kwargs["enforce_dtype"]) if enforces(value) else ""
        return function, dtype, tuple(_form(each, known, leaves) for each in value.args)
    if type(value) in (bool, int, float) or isinstance(value, np.generic):
        return type(value), repr(value)
    raise _Foreign


def _runs(family: list[_Member]) -> Iterator[list[_Member]]:
    """Yield members whose pieces follow each other."""
    run: list[_Member] = []
    for each in sorted(family, key=lambda member: member.start):
        if run and run[-1].stop != each.start:
            yield run
            run = []
        run.append(each)
    yield run


def _divided(run: list[_Member], count: int) -> Iterator[list[_Member]]:
    """Yield so many parts of a run, or fewer."""
    size = max(-(-len(run) // count), FEWEST)
    yield from (run[k : k + size] for k in range(0, len(run), size))


def _name(run: Sequence[_Member]) -> Any:
    """Return a key for the task of some members, the same wherever they are the same."""
    told = repr([each.key for each in run])
    digest = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
    return (f"rejoined-{key_split(run[0].key)}-{digest}", 0)
