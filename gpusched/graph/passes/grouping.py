"""Which tasks of a graph run together, so that no batch ever waits for one that waits for it.

Each group has a level, and what comes into a group comes from lower levels: so groups form no
cycle, whatever the graph. Tasks are gone through depth first, operands before their users: a task
joins the group of its operands if it has but one at the highest level, and otherwise the group of
its level that is still open. So neighbours are side by side in one group. Each task and each edge
is looked at a constant number of times. A group whose results would be sent to many that use little
of them is parted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from gpusched import config
from gpusched.dataclass import dataclass
from gpusched.quantities import read_bytes, read_count
from gpusched.roles import threads

A_THREAD = 4
"""Batches that each thread finds in a stage of a graph, at least."""
BATCHES = 64
"""Batches that a stage is left however few threads there are: others may join a cluster."""


@dataclass(frozen=True)
class Limits:
    """What a batch may be."""

    tasks: int
    """Neighbours side by side; fewer than 2 for no batches at all."""
    nbytes: int
    """Bytes of all chunks that a batch makes and takes."""
    chunk: int
    """Bytes of the largest chunk that is batched."""
    least: int
    """Batches that a stage of the graph is left at least."""

    def side_by_side(self, width: int) -> int:
        """Return how many of a stage's `width` tasks go into a batch.

        Examples
        --------
        >>> from gpusched.graph.passes.grouping import Limits
        >>> limits = Limits(tasks=256, nbytes=1 << 22, chunk=1 << 17, least=64)
        >>> limits.side_by_side(100_000), limits.side_by_side(640), limits.side_by_side(63)
        (256, 10, 1)
        """
        return max(1, min(self.tasks, width // self.least))


def tiny_bytes() -> int:
    """Return the bytes of the largest chunk whose tasks are batched, by the configuration.

    Raises
    ------
    ValueError
        If the setting is not a number of bytes.
    """
    return read_bytes("gpusched.batching.chunk-bytes", config.get("batching.chunk-bytes"))


def limits() -> Limits:
    """Return what the configuration has, for the threads that are known here.

    Raises
    ------
    ValueError
        If a setting is not a number of tasks or bytes.
    """
    least = config.get("batching.least")
    if least is None:
        least = max(BATCHES, A_THREAD * threads())
    return Limits(
        read_count("gpusched.batching.tasks", config.get("batching.tasks")),
        read_bytes("gpusched.batching.bytes", config.get("batching.bytes")),
        tiny_bytes(),
        max(1, read_count("gpusched.batching.least", least)),
    )


class Group:
    """Tasks that run together, or one that runs alone."""

    __slots__ = ("height", "large", "level", "members", "nbytes", "open", "room", "width")

    def __init__(self, level: int, room: int, large: frozenset[Any] = frozenset()) -> None:
        self.level = level
        self.large = large
        """Keys of large chunks that it takes pieces of: one task has to have all of these."""
        self.members: list[Any] = []
        """Keys, operands before their users."""
        self.nbytes = 0.0
        """Of all chunks that it makes, and of those that it takes."""
        self.room = room
        """Tasks side by side that there is room for; 0 if nothing joins it."""
        self.width = 0
        """Tasks side by side."""
        self.height: dict[Any, int] = {}
        """By member, the tasks one after the other that end with it."""
        self.open = room > 1

    def add(self, key: Any, height: int, nbytes: float) -> None:
        """Take a task that comes after the `height - 1` tasks of the group below it."""
        self.members.append(key)
        self.nbytes += nbytes
        self.height[key] = height
        if height == 1:
            self.width += 1
            self.open = self.open and self.width < self.room


class Grouping:
    """Puts the tasks of a graph into groups.

    Parameters
    ----------
    operands
        By key, the keys that a task depends on, in the order of its arguments. All of them are
        tasks themselves, and come before their users.
    sizes
        Bytes of results, by key, as far as they are known.
    pieces
        By key: the bytes that a task takes of large chunks, where it needs but a piece of these.
    tiny
        Keys of the tasks that may be batched; all that they depend on has a known size.
    data
        Keys of what is no task: it comes before everything.
    limits
        What a group may be.

    Examples
    --------
    >>> from gpusched.graph.passes.grouping import Grouping, Limits
    >>> operands = {"a": [], "b": [], "ab": ["a", "b"], "c": [], "d": [], "cd": ["c", "d"]}
    >>> limits = Limits(tasks=2, nbytes=1000, chunk=100, least=1)
    >>> sizes = dict.fromkeys(operands, 8)
    >>> groups = Grouping(operands, sizes, {}, set(operands), set(), limits).run()
    >>> [group.members for group in groups]
    [['a', 'b', 'ab'], ['c', 'd', 'cd']]
    """

    def __init__(self, operands: Mapping[Any, Sequence[Any]], sizes: Mapping[Any, float],
                 pieces: Mapping[Any, Mapping[Any, int]], tiny: Set[Any], data: Set[Any],
                 limits: Limits) -> None:  # fmt: skip
        self._operands = operands
        self._sizes = sizes
        self._pieces = pieces
        self._tiny = tiny
        self._data = data
        self._limits = limits
        self._open: dict[tuple[int, frozenset[Any]], Group] = {}
        """By level, and by the large chunks that pieces are taken of."""
        self.of: dict[Any, Group] = {}
        self._groups: list[Group] = []
        self._depths = self._measured()
        self._widths = Counter(self._depths[key] for key in tiny)

    def run(self) -> list[Group]:
        """Return all groups, each after those that it depends on; some are of one task."""
        for key in self._operands:
            if key in self._tiny:
                self._place(key)
            else:
                self._alone(key)
        groups = sorted(self._groups, key=lambda group: group.level)
        scattered = self._scattered(groups)
        return [part for group in groups for part in self._parted(group, group in scattered)]

    def _scattered(self, groups: list[Group]) -> set[Group]:
        """Return the groups whose results go to many others, which need a small part of them each.

        Each of those would have all of them in memory. Where each of many takes all, as in the
        second of two matrices, that is no more than without groups.
        """
        taken: dict[Group, dict[Group, set[Any]]] = {}
        for group in groups:
            for key in group.members:
                for other in self._operands[key]:
                    source = self.of[other]
                    if source is not group and len(source.members) > 1:
                        taken.setdefault(source, {}).setdefault(group, set()).add(other)
        return {source for source, by_taker in taken.items() if self._spreads(by_taker.values())}

    def _spreads(self, taken: Collection[Set[Any]]) -> bool:
        """Return whether much more of a group's results is sent than is used."""
        results = sum([self._sizes[key] for key in set().union(*taken)])
        used = sum([self._sizes[key] for keys in taken for key in keys])
        return results > _SLIGHT and results * len(taken) > _SPREAD * used

    def _parted(self, group: Group, apart: bool) -> list[Group]:
        """Return a group, or one for each of its members."""
        if not apart:
            return [group]
        found = []
        for key in group.members:
            self.of[key] = single = Group(group.level, 0)
            single.members.append(key)
            found.append(single)
        return found

    def _measured(self) -> dict[Any, int]:
        """Return how many tasks come before each, one after the other, at most."""
        found: dict[Any, int] = {}
        for key, operands in self._operands.items():
            found[key] = 1 + max([found[k] for k in operands], default=-1)
        return found

    def _alone(self, key: Any) -> None:
        level = -1 if key in self._data else 1 + max(
            [self.of[k].level for k in self._operands[key]], default=-1
        )  # fmt: skip
        group = Group(level, 0)
        self._groups.append(group)
        self.of[key] = group
        group.members.append(key)

    def _place(self, key: Any) -> None:
        operands = self._operands[key]
        nbytes = self._sizes[key]
        level, below = -1, None
        for other in operands:
            group = self.of[other]
            if group.level > level:
                level, below = group.level, group
            elif group.level == level and group is not below:
                below = None
        # The large chunks that it takes pieces of.
        large = frozenset(self._pieces.get(key, ()))
        if below is not None and below.room:
            needed = nbytes + self._taken(below, key)
            if self._fits(below, large, needed):
                heights = below.height
                height = 1 + max([heights[k] for k in operands if k in heights])
                return self._join(below, key, height, needed)
        needed = nbytes + self._taken(None, key)
        found = self._open.get((level + 1, large))
        if found is None or not found.open or not self._fits(found, large, needed):
            room = self._limits.side_by_side(self._widths[self._depths[key]])
            found = self._open[level + 1, large] = Group(level + 1, room, large)
            self._groups.append(found)
        self._join(found, key, 1, needed)

    def _fits(self, group: Group, large: frozenset[Any], nbytes: float) -> bool:
        few = len(group.members) < _TASKS * max(group.room, 1)
        return few and large <= group.large and group.nbytes + nbytes <= self._limits.nbytes

    def _taken(self, group: Group | None, key: Any) -> float:
        """Return the bytes that a task takes from outside the group, which it may begin."""
        get, of, pieces = self._sizes.get, self.of, self._pieces.get(key, {})
        outside = [k for k in self._operands[key] if of[k] is not group]
        return sum([pieces[k] if k in pieces else get(k, 0) for k in outside])

    def _join(self, group: Group, key: Any, height: int, nbytes: float) -> None:
        group.add(key, height, nbytes)
        self.of[key] = group


# Deviations along one axis of 150 x 150 tiny chunks would send 2 GB from batch to batch, not 9 MB.
_SLIGHT = 1 << 16
"""Bytes that cost less to send than to send by themselves."""
_SPREAD = 4
"""Bytes of a group's results that are sent for each that is used, at most."""
_TASKS = 8
"""Tasks of a group for each of those side by side, at most."""
