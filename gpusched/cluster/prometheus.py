"""The scheduler's /metrics page: what each worker reported in its last heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpusched.adapters.distributed import add_collector
from gpusched.workers.metrics import HEARTBEAT_KEY
from gpusched.workers.metrics.exposition import families

if TYPE_CHECKING:
    from gpusched.workers.metrics.exposition import Family

PREFIX = "gpusched_scheduler"
"""Of the names on a scheduler's page; a worker's own page has ``gpusched_worker``."""


class WorkersCollector:
    """Yields the numbers of all of a scheduler's workers.

    Parameters
    ----------
    server
        The scheduler; distributed sets another one here where several follow in one process.
    """

    def __init__(self, server: Any) -> None:
        self.server = server

    def describe(self) -> Iterator[Family]:
        """Yield the families without samples."""
        return families(PREFIX, ())

    def collect(self) -> Iterator[Family]:
        """Yield the families, with a sample for each worker that reported it."""
        workers = self.server.workers.values()
        return families(
            PREFIX, [(str(ws.name), ws.metrics.get(HEARTBEAT_KEY, {})) for ws in workers]
        )


def register() -> bool:
    """Show the workers' numbers on the /metrics page of this process's schedulers; idempotent.

    Returns
    -------
    bool
        Whether there is such a page; there is none without prometheus_client.

    Examples
    --------
    >>> from gpusched.cluster import prometheus
    >>> prometheus.register() == prometheus.register()
    True
    """
    try:
        _add()
    except ImportError:
        return False
    return True


@lru_cache(maxsize=1)
def _add() -> None:
    import prometheus_client
    from distributed.http.scheduler.prometheus import core

    collectors: list[Any] = core.COLLECTORS
    collectors.append(WorkersCollector)
    collector = add_collector(core.PrometheusHandler, WorkersCollector)
    if collector is not None:
        prometheus_client.REGISTRY.register(collector)
