"""A graph's nodes, as the passes over it have them before there are programs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from dask.utils import key_split

from gpusched.adapters.tasks import Alias, Task
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.graph.passes.joins import joined
from gpusched.graph.passes.sizes import Sizes, leaves_less
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.templates import Forms
from gpusched.graph.subgraph import flattened, references

ANNOTATED = GraphBreak.ANNOTATED("an annotated task")
MADE = GraphBreak.FORM("a task that makes data")
OFF = GraphBreak.FEW_TASKS("gpusched.fusion.merge-bytes is 0")
SMALL = GraphBreak.SMALL("chunks below gpusched.fusion.merge-bytes")

PASSES = "chain", "unsplit", "reduce", "absorb", "recompute", "merge", "cut", "batch"
"""What puts tasks together, by the names under which it notes why some stay apart."""


@dataclass(frozen=True)
class Table:
    """dask's nodes by key, optimised, and what a pass asks about them.

    Notes
    -----
    Immutable, but for what passes note: one returns another table, or the same one if it has
    changed nothing.
    """

    tasks: dict[Any, Any]
    wanted: Collection[Any]
    """Keys of the results, which stay keys; batches are made in their order."""
    sizes: Sizes = field(default_factory=lambda: Sizes({}))
    """Of the chunks."""
    functions: Functions = field(default_factory=Functions)
    """What is known of the functions in the graph."""
    items: frozenset[Any] = frozenset()
    """Keys of tasks that take small items out of the results of others, and that nobody but tasks
    asks for: moving a whole result costs those less than a task that takes the item out."""

    joins: Mapping[Any, Any] = field(default_factory=dict)
    """Tasks that join the chunks of results, by key, if they were left out, see `without_joins`."""

    apart: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """Why tasks stay apart, by pass: what the passes have noted so far."""

    forms: Forms = field(default_factory=Forms, repr=False)
    """What tasks of one form have in common; all tables of a graph share it."""

    flat: dict[int, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    """By identity, nodes that have been asked for, and what `inside` returns for each; all tables
    of a graph share it."""

    def inside(self, node: Any) -> tuple[dict[Any, Any], Any] | None:
        """Return the tasks that are fused to one, as `gpusched.graph.subgraph.flattened` does."""
        found = self.flat.get(id(node))
        if found is None:
            found = self.flat[id(node)] = node, flattened(node)
        inside: tuple[dict[Any, Any], Any] | None = found[1]
        return inside

    def fused(self, inside: Sequence[Any], key: Any) -> Any:
        """Return tasks that none of others is fused into, the last one under that key, as one."""
        if len(inside) == 1:
            return inside[0]
        node = Task.fuse(*inside, key=key)
        self.flat[id(node)] = node, ({each.key: each for each in inside}, key)
        return node

    def note(self, what: str, reason: Reason, times: int = 1) -> None:
        """Note that a pass leaves tasks apart."""
        self.apart[what, reason] += times

    @cached_property
    def users(self) -> Counter[Any]:
        """How many nodes need each key."""
        return uses(self.tasks)

    def is_worthwhile(self, task: Task) -> bool:
        """Return whether a task is worth a program, see `Functions.worthwhile`."""
        return self.forms.answer(self.functions.worthwhile, task)

    def is_recorded(self, task: Task) -> bool:
        """Return whether a task calls nothing that a program only calls, or takes no time."""
        return self.forms.answer(self.functions.is_recorded, task)

    def why_small(self, least: int) -> Reason | None:
        """Return why no chunk has as many bytes as tasks are put together for; None if one has."""
        if not least:
            return OFF
        return SMALL if self.sizes.largest < least else None

    def why_fixed(self, node: Any) -> Reason | None:
        """Return why a task may not become part of another one; None if it may."""
        if node.data_producer:
            return MADE
        return ANNOTATED if self.sizes.is_annotated(node) else None

    def with_inside(self, inside: Mapping[Any, Sequence[Any]]) -> Table:
        """Return a table in which tasks are part of others.

        Parameters
        ----------
        inside
            By key, the keys of those that only this task needs, and that become part of it; so do
            those that become part of them.
        """
        inner = {key for keys in inside.values() for key in keys}
        if not inner:
            return self
        result = {}
        for key, node in self.tasks.items():
            if key not in inner:
                chain, waiting = [node], list(inside.get(key, ()))
                while waiting:
                    other = waiting.pop()
                    chain.append(self.tasks[other])
                    waiting += inside.get(other, ())
                result[key] = Task.fuse(*reversed(chain), key=key) if len(chain) > 1 else node
        return replace(self, tasks=result)

    def without_joins(self, keys: Collection[Any]) -> Table:
        """Return a table without some tasks that join chunks: what they join is wanted instead."""
        if not keys:
            return self
        joins = {key: self.tasks[key] for key in keys}
        tasks = {key: node for key, node in self.tasks.items() if key not in joins}
        read = [key for node in joins.values() for key in references(node)]
        wanted = dict.fromkeys([*read, *[key for key in self.wanted if key not in joins]])
        return replace(self, tasks=tasks, wanted=[*wanted], joins=joins)

    @cached_property
    def held(self) -> set[Any]:
        """Keys of chunks that stay until the end: what is wanted joins them, or is another name."""
        nodes = [self.tasks[key] for key in self.wanted if key in self.tasks]
        return set().union(*(node.dependencies for node in nodes if _gathers(node)))

    def with_items(self, tasks: dict[Any, Any], items: Iterable[Any]) -> Table:
        """Return a table of other tasks, with some that take items out of others' results.

        What nodes ask for that are no tasks stays a task of its own.
        """
        found = {*self.items, *items}.difference(self.wanted)
        for node in tasks.values():
            if type(node) is not Task:
                found -= node.dependencies
        return replace(self, tasks=tasks, items=frozenset(found))

    def nbytes(self, key: Any) -> int | None:
        """Return the bytes of the largest chunk of a chunk's layer; None if that is not known.

        What passes do with the tasks of a layer is the same for all of its chunks.
        """
        node = self.tasks.get(key)
        if node is None:
            return self.sizes.of_key(key)
        if type(node) is not Task:
            return self.sizes.of(node)
        return self.sizes.of_task(node, self.forms.answer(leaves_less, node))

    def unknown(self, what: str, keys: Iterable[Any]) -> Reason:
        """Return the reason for some chunks whose sizes are not known."""
        return self.sizes.unknown(what, [self.tasks.get(key, key) for key in keys])


class KnownBytes(dict[Any, int]):
    """By key: the bytes of a table's chunks at most; 0 of those whose size is not known."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, key: Any) -> int:
        found = self[key] = self._table.nbytes(key) or 0
        return found


def uses(tasks: Mapping[Any, Any]) -> Counter[Any]:
    """Return how many nodes of a graph need each key."""
    return Counter(chain.from_iterable(node.dependencies for node in tasks.values()))


def drop(tasks: dict[Any, Any], keys: Iterable[Any], wanted: Collection[Any]) -> None:
    """Remove tasks that nothing needs any more, and what only they need."""
    users = uses(tasks)
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        if key in tasks and not users[key] and key not in wanted:
            needed = tasks.pop(key).dependencies
            users.subtract(needed)
            waiting += needed


def _gathers(node: Any) -> bool:
    """Return whether a node takes all chunks of a result: to join them, or by another name."""
    return isinstance(node, Alias) or bool(joined(node))


def key_of(kind: str, first: Any, content: Any, block: Any = ()) -> Any:
    """Return a key for a task that does the work of others, the same in all processes.

    Parameters
    ----------
    kind
        What was done to them.
    first
        Key of one of them.
    content
        What differs between such tasks of one kind; all chunks of a layer have it alike.
    block
        Which chunk of its layer it makes.
    """
    digest = hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()
    name = f"{kind}-{key_split(first)}-{digest}"
    return (name, *block)


def block_of(key: Any) -> Any:
    """Return which chunk of its array a task makes.

    Examples
    --------
    >>> from gpusched.graph.passes.table import block_of
    >>> block_of(("add-1f3a", 0, 2)), block_of("finalize-1f3a")
    ((0, 2), ())
    """
    return key[1:] if type(key) is tuple else ()
