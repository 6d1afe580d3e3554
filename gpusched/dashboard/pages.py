"""The pages, and each plot by itself, as distributed's dashboard serves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.layouts import column, row
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env, individual_doc
from distributed.utils import log_errors

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.breaks import Breaks
from gpusched.dashboard.components.compiling import Compiling
from gpusched.dashboard.components.fusedtasks import FusedTasks
from gpusched.dashboard.components.kernelbars import KernelBars
from gpusched.dashboard.components.kerneltable import KernelTable
from gpusched.dashboard.components.memory import CommittedByWorker, Memory
from gpusched.dashboard.components.navigation import TITLES, navigation
from gpusched.dashboard.components.spill import Spill
from gpusched.dashboard.components.timeline import Timeline
from gpusched.dashboard.components.utilization import Utilization
from gpusched.dashboard.components.waiting import Waiting

INTERVAL = 500
"""Milliseconds between two updates of what is shown."""

Document = Callable[[Any, dict[str, Any], Any], None]


def _page(address: str, *rows: tuple[type[Component], ...]) -> Document:
    """Return what makes a page of rows of plots."""

    @log_errors
    def make(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
        laid = [navigation(address)]
        for kinds in rows:
            plots = [kind(scheduler, sizing_mode="stretch_both", min_height=160) for kind in kinds]
            for each in plots:
                each.update()
                add_periodic_callback(doc, each, INTERVAL)
            laid.append(row(*(each.root for each in plots), sizing_mode="stretch_both"))
        doc.add_root(column(*laid, sizing_mode="stretch_both"))
        doc.title = f"gpusched: {TITLES[address]}"
        doc.template = env.get_template("simple.html")
        doc.template_variables.update(extra)
        doc.theme = BOKEH_THEME

    return make


_GPUS = _page("gpus", (Memory,), (Utilization, Spill))

APPLICATIONS: dict[str, Document] = {
    "/gpusched": _GPUS,
    "/gpus": _GPUS,
    "/memory": _page("memory", (CommittedByWorker,), (Waiting,)),
    "/kernels": _page("kernels", (KernelBars,), (KernelTable,)),
    "/fusion": _page("fusion", (FusedTasks,), (Breaks,)),
    "/compiling": _page("compiling", (Compiling,)),
    "/timeline": _page("timeline", (Timeline,)),
    "/individual-gpusched-memory": individual_doc(Memory, INTERVAL),
    "/individual-gpusched-utilization": individual_doc(Utilization, INTERVAL),
    "/individual-gpusched-spill": individual_doc(Spill, INTERVAL),
    "/individual-gpusched-committed": individual_doc(CommittedByWorker, INTERVAL),
    "/individual-gpusched-waiting": individual_doc(Waiting, INTERVAL),
    "/individual-gpusched-kernels": individual_doc(KernelBars, INTERVAL),
    "/individual-gpusched-kernel-source": individual_doc(KernelTable, INTERVAL),
    "/individual-gpusched-fusion": individual_doc(FusedTasks, INTERVAL),
    "/individual-gpusched-breaks": individual_doc(Breaks, INTERVAL),
    "/individual-gpusched-compiling": individual_doc(Compiling, INTERVAL),
    "/individual-gpusched-timeline": individual_doc(Timeline, INTERVAL),
}
"""By their addresses below the dashboard's."""
