"""What a worker reports of its device, its kernels and its memory: in heartbeats and at /metrics.

From source to reader, a file per step: `sampler` (what NVML says, off the event loop), `snapshot`
(one dictionary), `metric_table` (each number's name and meaning), `exposition` (Prometheus).
Importing this package imports neither NVML, nor Prometheus, nor fusion.
"""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from gpusched.workers.metrics.exposition import export
from gpusched.workers.metrics.metric_table import METRICS, Metric
from gpusched.workers.metrics.snapshot import collect

__all__ = ["HEARTBEAT_KEY", "METRICS", "Metric", "Metrics", "collect", "register"]

HEARTBEAT_KEY = "gpusched"
"""Where a worker's numbers are among its metrics, on the scheduler."""


def register(worker: Any) -> None:
    """Send a worker's numbers with each heartbeat, and show them at its own /metrics.

    The page needs prometheus_client, as distributed's own does; without it only the heartbeats
    have them.

    Parameters
    ----------
    worker
        A `distributed.Worker`, of whose ``device``, ``data`` and ``recoveries`` what there is
        receives.

    Examples
    --------
    >>> from distributed import LocalCluster
    >>> from gpusched.workers import metrics
    >>> with LocalCluster(processes=False, dashboard_address=":0") as cluster:
    ...     worker = cluster.workers[0]
    ...     metrics.register(worker)
    ...     list(worker.metrics)
    ['gpusched']
    """
    worker.metrics[HEARTBEAT_KEY] = _tell
    export(worker)


class Metrics(WorkerPlugin):
    """Registers each worker that it is given to."""

    name = "gpusched-metrics"

    def setup(self, worker: Any) -> None:
        """Register a worker."""
        register(worker)


async def _tell(worker: Any) -> dict[str, dict[str, Any]]:
    return collect(worker)
