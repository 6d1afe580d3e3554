"""Clients that have not said whether they want fusion: the scheduler fuses their array graphs."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.serialize import (
    Serialized,
    pickle_loads,
    register_serialization_family,
)

from gpusched import config
from gpusched.workers.version_check import HANDSHAKE_KEY

_FAMILY = "gpusched-fusing"
"""Says that an expression is pickled, and is to be fused as it is read."""


class PlainClients(SchedulerPlugin):
    """Fuses the array graphs of clients that have not switched fusion on or off.

    dask sends graphs to the scheduler with the function that is to optimise them. Where this is
    dask's own, which a client sends that knows nothing of gpusched, gpusched's takes its place.

    Notes
    -----
    Used on the event loop only. Graphs of array expressions stay as they are: these do not say
    whether they should be optimised. `gpusched.cluster.scheduler` installs it.
    """

    name = "gpusched-clients"

    def __init__(self) -> None:
        self.enabled: bool = config.get("fusion.enabled")

    def install(self, scheduler: Scheduler) -> None:
        """Start to read the graphs that a scheduler is sent."""
        self._scheduler = scheduler
        self._plain = scheduler.stream_handlers["update-graph"]
        scheduler.stream_handlers["update-graph"] = self._update_graph

    async def _update_graph(self, *, expr_ser: Serialized, **kwargs: Any) -> None:
        if self.enabled and self._workers_have_gpusched():
            expr_ser = _to_be_fused(expr_ser)
        await self._plain(expr_ser=expr_ser, **kwargs)

    def _workers_have_gpusched(self) -> bool:
        # A worker that cannot read a program would die of it.
        workers = self._scheduler.workers.values()
        return all(HANDSHAKE_KEY in worker.extra for worker in workers)


def _to_be_fused(expression: Serialized) -> Serialized:
    if expression.header.get("serializer") != "pickle":
        return expression
    return Serialized({**expression.header, "serializer": _FAMILY}, expression.frames)


def _loads(header: dict[str, Any], frames: list[Any]) -> Any:
    from dask.array.optimization import optimize as dask_optimize

    from gpusched.graph.frontends.adapter import replace_optimiser
    from gpusched.graph.hook import Hook

    found = pickle_loads(header, frames)
    # No overrides: those of a client's process go with its own hook.
    replace_optimiser(found, dask_optimize, Hook())
    return found


def _dumps(expression: Any) -> Any:
    raise NotImplementedError("expressions are pickled by clients")


register_serialization_family(_FAMILY, _dumps, _loads)
