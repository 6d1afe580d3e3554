"""A graph's nodes, as the passes over it have them before there are programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import field
from functools import cached_property
from typing import Any

from gpusched.breaks import Reason
from gpusched.dataclass import dataclass
from gpusched.graph.rewrite import Functions
from gpusched.graph.sizes import Sizes

PASSES = "chain", "unsplit", "absorb", "merge", "cut", "batch"
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

    apart: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """Why tasks stay apart, by pass: what the passes have noted so far."""

    def note(self, what: str, reason: Reason, times: int = 1) -> None:
        """Note that a pass leaves tasks apart."""
        self.apart[what, reason] += times

    @cached_property
    def users(self) -> Counter[Any]:
        """How many nodes need each key."""
        found: Counter[Any] = Counter()
        for node in self.tasks.values():
            found.update(node.dependencies)
        return found

    def nbytes(self, key: Any) -> int | None:
        """Return the bytes of the largest chunk of a chunk's layer; None if that is not known.

        What passes do with the tasks of a layer is the same for all of its chunks.
        """
        node = self.tasks.get(key)
        return self.sizes.of_key(key) if node is None else self.sizes.of(node)
