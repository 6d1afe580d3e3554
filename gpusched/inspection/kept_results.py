"""How many bytes of results are kept at once while a graph's tasks run in dask's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dask.order import order

from gpusched.adapters.tasks import Alias
from gpusched.graph.subgraph import resolved


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
    >>> from gpusched.inspection.kept_results import most_kept
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
