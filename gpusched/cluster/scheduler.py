"""A preload for schedulers: versions, exit reasons of workers, metrics and programs.

It refuses workers of other versions, reports why workers died, exports metrics, fuses the graphs
of clients that know nothing of gpusched, gives each worker each program once, has results that
arrive damaged computed again, and refuses graphs that cannot fit where that is asked for.

``gpusched scheduler`` and `gpusched.Cluster` load it; for a scheduler of dask's own,
``dask scheduler --preload gpusched.cluster.scheduler`` does.
"""

from __future__ import annotations

import logging
from typing import Any

from distributed import Scheduler
from distributed.metrics import time

from gpusched import config
from gpusched.cluster import recomputing
from gpusched.cluster.exit_reasons import ExitReasons
from gpusched.cluster.fitting import Declarations
from gpusched.cluster.plain_clients import PlainClients
from gpusched.cluster.programs import Programs
from gpusched.cluster.prometheus import register
from gpusched.cluster.shared_kernels import Kernels
from gpusched.dashboard import page_registration
from gpusched.graph import early
from gpusched.logs import follow
from gpusched.workers import version_check
from gpusched.workers.handshakes import limit_handshakes, limit_requests

logger = logging.getLogger(__name__)


# Preloads are imported before the dashboard is, and set up when it has started.
page_registration.offer()


def dask_setup(scheduler: Scheduler) -> None:
    """Fit out a scheduler; called by distributed as it starts."""
    follow(scheduler)
    register()
    ExitReasons(scheduler).install()
    for plugin in (PlainClients(), Programs(), Kernels(), Declarations()):
        plugin.install(scheduler)
        scheduler.add_plugin(plugin)
    _refuse_other_versions(scheduler)
    page_registration.show(scheduler)
    limit_handshakes(scheduler)
    limit_requests(scheduler.http_server)
    recomputing.install(scheduler)
    if config.get("fusion.enabled"):
        early.prepare_for_graphs()


def _refuse_other_versions(scheduler: Scheduler) -> None:
    adding = scheduler.handlers["register-worker"]

    async def add_worker(comm: Any, **kwargs: Any) -> Any:
        refusal = _refusal(kwargs["address"], kwargs["versions"], kwargs.get("extra") or {})
        if refusal is None:
            return await adding(comm, **kwargs)
        logger.error("%s", refusal)
        await comm.write({"status": "error", "message": refusal, "time": time()})

    scheduler.handlers["register-worker"] = add_worker


def _refusal(address: str, told: dict[str, Any], extra: dict[str, Any]) -> str | None:
    """Return why a worker cannot join, or None if it can."""
    if not config.get("worker.check-versions"):
        return None
    theirs = version_check.of_handshake(told, extra)
    differing = version_check.differences(version_check.own_versions(), theirs)
    if not differing:
        return None
    return f"worker {address} has other versions than the scheduler: " + str(
        version_check.VersionSkewError(differing)
    )
