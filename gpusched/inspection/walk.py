"""Goes through a graph: once for each kind of task, counting the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import numpy as np
from dask.order import order

from gpusched.adapters.tasks import Alias, DataNode, Task, TaskRef
from gpusched.graph.programs.templates import Forms
from gpusched.graph.running.inputs import describe
from gpusched.graph.subgraph import depth_first, resolved
from gpusched.inspection.dry_run import UNKNOWN, Rehearser
from gpusched.inspection.gather import Wanted
from gpusched.inspection.standins import arrays_in, extent
from gpusched.inspection.task_contents import layer_of
from gpusched.inspection.variant import Variant


@dataclass
class Walked:
    """What came of going through a graph."""

    variants: list[Variant] = field(default_factory=list)
    """Kinds of tasks, in an order in which they can run."""
    tasks: int = 0
    """Tasks of the optimised graph; data and other names of tasks are none."""
    edges: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a task of the second stage uses one of the first, by the stages' names."""
    results: set[str] = field(default_factory=set)
    """Names of the stages that make what was asked for."""
    source_bytes: int = 0
    """Of the chunks that the graph holds, or reads from where they are kept."""
    result_bytes: int = 0
    """Of what was asked for."""


class _Made(NamedTuple):
    """What is known of a chunk."""

    value: Any
    """What stands in for it."""
    stage: str | None
    """The name of the stage that makes it; None for what the graph holds."""
    kind: int
    """A number, since kinds are hashed for each task."""


class Walk:
    """One way through a graph.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._tasks = wanted.tasks
        self._keys = wanted.keys
        self._items = wanted.items
        self._rehearser = Rehearser(wanted.built.layers)
        self._forms = Forms()
        self._made: dict[Any, _Made] = {}
        self._kinds: dict[Any, int] = {}
        self._readers: Counter[tuple[str, tuple[str | None, ...]]] = Counter()
        self._seen: dict[Any, tuple[Variant, _Made]] = {}
        self._chunks: dict[Any, Any] = {}
        self.found = Walked()

    def run(self) -> Walked:
        """Return what the graph's tasks do."""
        for key, node in _operands_first(self._tasks):
            if isinstance(node, DataNode):
                self._made[key] = self._of(node.value)
                self.found.source_bytes += extent(node.value)
            elif isinstance(node, Alias):
                self._alias(key, node.target)
            elif key in self._items:
                self._alias(key, node.args[0].key, node.args[1])
            else:
                self._visit(key, node)
        for variant in self.found.variants:
            held = sum(extent(array) for layer, array in variant.inputs if not layer)
            read = sum(call.bytes_written for call in variant.calls if call.source)
            self.found.source_bytes += variant.tasks * (held + read)
        for key in self._keys:
            made = self._chunk(key)
            self.found.result_bytes += extent(made.value)
            if made.stage is not None:
                self.found.results.add(made.stage)
        for (reader, sources), count in self._readers.items():
            for source in sources:
                if source is not None:
                    self.found.edges[source, reader] += count
        self._sort()
        return self.found

    def most_kept(self) -> int:
        """Return the most bytes of results that are kept at once, in dask's order, as known."""
        return most_kept(self._tasks, self._keys, self._nbytes)

    def _nbytes(self, key: Any) -> int:
        node = self._tasks[key]
        return (
            0 if isinstance(node, DataNode) else sum(map(extent, arrays_in(self._made[key].value)))
        )

    @property
    def has_gpus(self) -> bool:
        """Whether workers that own a GPU compute the graph, as far as this process knows."""
        return self._rehearser.devices.active

    def _sort(self) -> None:
        """Put the kinds of tasks into an order that is the same each time."""
        after: dict[str, set[str]] = {variant.name: set() for variant in self.found.variants}
        for source, reader in self.found.edges:
            if source != reader:
                after[reader].add(source)
        try:
            order = _in_order(after)
        except CycleError:
            # Layers may use each other's chunks.
            order = sorted(after)
        rank = {name: k for k, name in enumerate(order)}
        self.found.variants.sort(key=lambda variant: (rank[variant.name], str(variant.key)))

    def chunks(self) -> dict[Any, Any]:
        """Return what stands in for the chunks that were asked for, where that is known."""
        values = {key: self._made[key].value for key in self._keys if key in self._made}
        return {
            key: value * 0 if isinstance(value, np.number) else value
            for key, value in values.items()
            if value is not UNKNOWN
        }

    def _of(self, value: Any, stage: str | None = None) -> _Made:
        kind = _kind(value)
        return _Made(value, stage, self._kinds.setdefault(kind, len(self._kinds)))

    def _chunk(self, key: Any) -> _Made:
        """Return what is known of a chunk, also where it is kept on a cluster, outside the graph.

        Those come as dask expects them.
        """
        made = self._made.get(key)
        if made is None:
            told = isinstance(key, tuple) and key not in self._tasks
            value = self._rehearser.declared.chunk(layer_of(key), key[1:]) if told else None
            made = self._made[key] = self._of(UNKNOWN if value is None else value)
            self.found.source_bytes += extent(made.value)
        return made

    def _alias(self, key: Any, target: Any, item: int | None = None) -> None:
        """Note what is known of a chunk that is another one, or an item of it."""
        self._rehearser.devices.alias(layer_of(key), layer_of(target))
        made = self._chunk(target)
        if item is not None:
            value = made.value[item] if isinstance(made.value, tuple) else UNKNOWN
            made = self._of(value, made.stage)
        if made.value is UNKNOWN and isinstance(key, tuple):
            declared = self._rehearser.declared.chunk(layer_of(key), key[1:])
            made = self._of(UNKNOWN if declared is None else declared, made.stage)
        self._made[key] = made

    def _visit(self, key: Any, node: Task) -> None:
        form, inputs = self._forms.of(node)
        made = self._made
        given = [
            made.get(item.key) or self._chunk(item.key)
            if isinstance(item, TaskRef)
            else self._of(item)
            for item in inputs
        ]
        kinds = (self._declared(key), *[each.kind for each in given])
        # Equal tasks of two layers are of two lines of the program; delayed calls have no layer.
        layer = key[0] if isinstance(key, tuple) else str(key).rpartition("-")[0]
        found = self._seen.get((layer, form, kinds))
        if found is None:
            # What the user's function does with its chunks may depend on how many see them.
            values = {each: self._chunk(each).value for each in node.dependencies}
            variant = self._rehearser.rehearse(node, values)
            self.found.variants.append(variant)
            result = UNKNOWN if variant.result is None else variant.result
            found = variant, self._of(result, variant.name)
            self._seen[layer, form, kinds] = found
        variant, made[key] = found
        variant.tasks += 1
        self.found.tasks += 1
        self._readers[variant.name, tuple([each.stage for each in given])] += 1

    def _declared(self, key: Any) -> Any:
        """Return the shape that dask expects of a chunk."""
        if not isinstance(key, tuple):
            return None
        chunks = self._chunks.get(key[0])
        if chunks is None:
            chunks = self._chunks[key[0]] = self._rehearser.declared.chunks(layer_of(key))
        try:
            return tuple([c[k] for c, k in zip(chunks, key[1:], strict=True)])
        except (IndexError, TypeError, ValueError):
            return None  # the key is no chunk's position


def _operands_first(tasks: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the keys and nodes of a graph, each after those that it depends on."""
    keys = depth_first(tasks, lambda key: [k for k in tasks[key].dependencies if k in tasks])
    return [(key, tasks[key]) for key in keys]


def _in_order(after: dict[str, set[str]]) -> list[str]:
    sorter = TopologicalSorter(after)
    sorter.prepare()
    found: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += ready
        sorter.done(*ready)
    return found


def _kind(value: Any) -> Any:
    try:
        return describe(value)
    except TypeError:
        # Such as the dictionaries that some of dask's reductions return.
        if isinstance(value, dict):
            return tuple([(name, _kind(item)) for name, item in value.items()])
        if isinstance(value, list | tuple):
            return type(value), tuple([_kind(item) for item in value])
        # A source of chunks, such as a Zarr array, or something that only a function looks at.
        return type(value), str(getattr(value, "dtype", "")), getattr(value, "shape", None)


def most_kept(tasks: Mapping[Any, Any], keys: Collection[Any], nbytes: Callable[[Any], int]) -> int:
    """Return the most bytes of results that are kept at once, if tasks run one after the other.

    A result is kept until the last of the tasks that read it has ended, and those that were asked
    for to the end.

    Parameters
    ----------
    tasks
        dask's nodes by key; the graph's own data are not counted.
    keys
        Of the results that were asked for.
    nbytes
        Returns the bytes of a task's result, by key.

    Examples
    --------
    >>> from dask.task_spec import Task, TaskRef
    >>> from gpusched.inspection.walk import most_kept
    >>> tasks = {"a": Task("a", int)} | {
    ...     after: Task(after, abs, TaskRef(before)) for before, after in ("ab", "bc", "cd")
    ... }
    >>> most_kept(tasks, {"d"}, {"a": 4, "b": 3, "c": 2, "d": 1}.__getitem__)
    7
    """
    ranks = order(dict(tasks))
    made = {key: node for key, node in tasks.items() if not isinstance(node, Alias)}
    reads = {key: {resolved(tasks, each) for each in made[key].dependencies} for key in made}
    wanted = {resolved(tasks, key) for key in keys}
    readers = Counter(each for some in reads.values() for each in some)
    kept = most = 0
    for key in sorted(made, key=ranks.__getitem__):
        kept += nbytes(key)
        most = max(most, kept)
        for read in reads[key] & made.keys():
            readers[read] -= 1
            if not readers[read] and read not in wanted:
                kept -= nbytes(read)
        if not readers[key] and key not in wanted:
            kept -= nbytes(key)
    return most
