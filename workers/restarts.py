"""When a nanny gives up: a worker that ends again and again before it was given a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MOST_RESTARTS = 5
"""Ends in a row, each soon after the start and without a task, after which a nanny gives up."""

_SOON = 60.0
"""Seconds after its start in which the end of a worker without a task counts."""

_LOST = ("processing-tasks", "lost-computed-tasks", "lost-scattered-tasks")
"""What distributed's scheduler notes of a worker that it removes, if it had any."""


class Restarts:
    """Counts ends of a worker's process that no task can have caused.

    Notes
    -----
    Used on the event loop only.

    Examples
    --------
    >>> from gpusched.workers.restarts import Restarts
    >>> restarts = Restarts(most=2)
    >>> restarts.count(exitcode=3, seconds=1.0, had_tasks=False)
    False
    >>> restarts.count(exitcode=3, seconds=1.0, had_tasks=False)
    True
    """

    def __init__(self, most: int = MOST_RESTARTS) -> None:
        self.most = most
        self._ends = 0

    def count(self, exitcode: int, seconds: float, had_tasks: bool) -> bool:
        """Count one end, and return whether to give up.

        Parameters
        ----------
        exitcode
            As of `multiprocessing.Process`. A process that leaves with 0 was asked to.
        seconds
            How long the process has lived.
        had_tasks
            Whether it was given a task, or kept a result.
        """
        without_cause = exitcode != 0 and seconds < _SOON and not had_tasks
        self._ends = self._ends + 1 if without_cause else 0
        return self._ends >= self.most


def had_tasks(events: Iterable[tuple[float, Any]]) -> bool:
    """Return whether a worker had tasks or results when the scheduler removed it.

    Parameters
    ----------
    events
        Those of the worker's address, as `distributed.Scheduler.get_events` returns them.

    Examples
    --------
    >>> from gpusched.workers.restarts import had_tasks
    >>> had_tasks([(0.0, {"action": "remove-worker", "processing-tasks": {"x"}})])
    True
    """
    removals = [
        event
        for _, event in events
        if isinstance(event, Mapping) and event.get("action") == "remove-worker"
    ]
    # Without a removal there is no saying, and a worker with tasks must come back.
    return not removals or any(removals[-1].get(name) for name in _LOST)
