"""Whether chunks are as long as dask has noted: users' functions may return shorter ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gpusched.adapters.arrays import concatenate_arrays
from gpusched.graph.functions.known import known
from gpusched.graph.functions.partials import parts
from gpusched.graph.running.batch import calls_in
from gpusched.graph.subgraph import depth_first
from gpusched.record.catalogue import has


class Sized:
    """Which of a graph's chunks are as long as dask has noted.

    Parameters
    ----------
    tasks
        The graph's nodes by key.
    """

    def __init__(self, tasks: Mapping[Any, Any]) -> None:
        self._tasks = tasks
        self._found: dict[Any, bool] = {}

    def __call__(self, chunks: Collection[Any]) -> bool:
        """Return whether some chunks are.

        Those of users' functions, and what is made of them, are not known to be.
        """
        found, tasks = self._found, self._tasks
        new = [key for key in chunks if key in tasks and key not in found]
        for key in depth_first(
            new, lambda k: [o for o in tasks[k].dependencies if o in tasks and o not in found]
        ):
            before = all(found.get(other, True) for other in tasks[key].dependencies)
            found[key] = before and _keeps_size(tasks[key])
        return all(found.get(key, True) for key in chunks)


def _keeps_size(node: Any) -> bool:
    """Return whether a task's result is as large as dask has noted if its inputs are."""
    called = (part for function, *_ in calls_in(node) for part in parts(function))
    return all(
        known(f) or has(f, "lean") or has(f, "draws") or f is concatenate_arrays for f in called
    )
