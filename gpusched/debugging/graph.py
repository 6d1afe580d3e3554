"""The graph of an array, and the values of its chunks, computed where the array would be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dask.array import Array
from dask.base import get_scheduler

from gpusched.adapters.tasks import Alias, DataNode, GraphNode, Task, TaskRef
from gpusched.debugging.host_copies import Placement, fetched
from gpusched.debugging.subject import name_of_layer
from gpusched.debugging.traced_values import Index, Where
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.rewrite import rewrite_labelled
from gpusched.inspection.gather import gather
from gpusched.inspection.places import place_of_layer
from gpusched.inspection.standins import Declared
from gpusched.inspection.task_contents import layer_of, result_key


class Graph:
    """The tasks that compute an array, as they run.

    Notes
    -----
    Belongs to one thread. Keeps what has been fetched.
    """

    def __init__(self, array: Array) -> None:
        wanted = gather(array)
        self.tasks = wanted.tasks
        # Holds the futures of what is kept on a cluster.
        self._built = wanted.built
        self.functions = Functions()
        self._declared = Declared(wanted.built.layers)
        self._get = get_scheduler(collections=[array]) or array.__dask_scheduler__
        self._values: dict[Any, Any] = {}
        self.placement = Placement()
        """Of what has been fetched, and of what is made of it here."""

    def node(self, key: Any) -> GraphNode:
        """Return the task, or the data, behind a key; through other names for it."""
        if key not in self.tasks:
            # Kept on a cluster, since it was persisted there.
            return DataNode(key, self.fetch([key])[key])
        found: GraphNode = self.tasks[key]
        while isinstance(found, Alias) and found.target in self.tasks:
            found = self.tasks[found.target]
        return found

    def fetch(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the values of some keys, in this process's memory."""
        keys = list(keys)
        missing = [key for key in keys if key not in self._values]
        for key in missing:
            node = self.node(key) if key in self.tasks else None
            if isinstance(node, DataNode) and not isinstance(node.value, TaskRef):
                self._values[key] = self.placement.bring(node.value)
        missing = [key for key in missing if key not in self._values]
        for key, (value, there) in zip(missing, self.apply(fetched, missing), strict=True):
            self._values[key] = value
            if there:
                self.placement.mark(value)
        return {key: self._values[key] for key in keys}

    def inputs(self, node: GraphNode) -> dict[Any, Any]:
        """Return what a task depends on, by key."""
        return self.fetch(sorted(node.dependencies, key=str))

    def apply(self, function: Any, keys: list[Any]) -> list[Any]:
        """Return what a function makes of the values of some keys, called where they are."""
        if not keys:
            return []
        every = (key for key in self.ancestors(keys) if key in self.tasks)
        graph = {key: rewrite_labelled(self.tasks[key], self.functions)[0] for key in every}
        name = f"gpusched-{function.__name__}"
        tasks = [Task((name, str(key)), function, TaskRef(key)) for key in keys]
        graph |= {task.key: task for task in tasks}
        return list(self._get(graph, [task.key for task in tasks]))

    def ancestors(self, keys: Iterable[Any]) -> list[Any]:
        """Return keys and all they depend on, what is needed before what needs it."""
        found: dict[Any, None] = {}
        work = [(key, False) for key in reversed(list(keys))]
        seen: set[Any] = set()
        while work:
            key, expanded = work.pop()
            if expanded:
                found[key] = None
            elif key not in seen:
                seen.add(key)
                work.append((key, True))
                work += [(other, False) for other in sorted(self.needs(key), key=str)[::-1]]
        return list(found)

    def needs(self, key: Any) -> frozenset[Any]:
        """Return the keys that one depends on."""
        node = self.tasks.get(key)
        return frozenset() if node is None else frozenset(node.dependencies)

    def named(self, key: Any) -> Any:
        """Return the key of the array's chunk that is behind a key of a fused task."""
        if self._declared.chunks(layer_of(key)):
            return key
        return result_key(self.node(key)) if key in self.tasks else key

    def where(self, key: Any, local: Index, note: str = "") -> Where:
        """Return what an element of a chunk is called."""
        key = self.named(key)
        layer = layer_of(key)
        index = self._position(key, local)
        chunk = tuple(key[1:]) if index is not None and isinstance(key, tuple) else None
        return Where(name_of_layer(layer), index, chunk, note, place_of_layer(layer))

    def _position(self, key: Any, local: Index) -> Index | None:
        if not isinstance(key, tuple) and isinstance(self.tasks.get(key), DataNode):
            return local  # In a whole array, which other tasks cut their chunks from.
        block = key[1:] if isinstance(key, tuple) else ()
        chunks = self._declared.chunks(layer_of(key))
        if len(chunks) != len(block) or len(local) != len(block):
            return None
        offsets = [sum(lengths[:k]) for lengths, k in zip(chunks, block, strict=True)]
        if any(offset != offset for offset in offsets):
            return None
        return tuple(int(o) + k for o, k in zip(offsets, local, strict=True))
