"""Whether chunks are as long as dask has noted: users' functions may return shorter ones."""

from __future__ import annotations

import sys
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
    return all(all(map(_is_known, parts(f))) or _is_of_groups(f) for f, *_ in calls_in(node))


def _is_known(function: Any) -> bool:
    traits = has(function, "lean") or has(function, "draws")
    return known(function) or traits or function is concatenate_arrays


def _is_of_groups(function: Any) -> bool:
    if "flox.dask" not in sys.modules:
        return False
    from gpusched.graph.functions.grouped import keeps_groups

    return keeps_groups(function)
