"""How busy each worker's device is."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import ColumnDataSource, FactorRange, NumeralTickFormatter
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.figures import first, hover, legend_above, more, plot
from gpusched.dashboard.device_reports import devices

_KINDS = {"cuda": ("GPU: time in which a kernel ran", "#76b900"),
          "cpu": ("CPU: threads in use", "#3f7fcf")}  # fmt: skip


class Utilization(Component):
    """A bar per worker: what NVML says of its GPU, or how many of its threads compute."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.source = ColumnDataSource({"label": [], "used": [], "color": [], "kind": []})
        self.root = plot("Utilisation", y_range=FactorRange(),
                         name="gpusched_utilization", **kwargs)  # fmt: skip
        self.root.hbar(y="label", right="used", height=0.7, color="color", line_color=None,
                       legend_field="kind", source=self.source)  # fmt: skip
        self.root.xaxis.formatter = NumeralTickFormatter(format="0 %")
        legend_above(self.root)
        hover(self.root, [("worker", "@label"), ("used", "@used{0 %}")])

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what workers reported last."""
        rows = devices(self.scheduler.workers.values())
        known = [row for row in rows if row.utilization is not None]
        used = [(row.utilization or 0.0) / 100 for row in known]
        self.root.title.text = (
            f"Utilisation: {sum(used) / len(used):.0%} on average{more(known)}"
            if used
            else "Utilisation: no worker has reported it yet"
        )
        shown = first(known)
        self.root.y_range.factors = [row.label for row in reversed(shown)]
        update(
            self.source,
            {
                "label": [row.label for row in shown],
                "used": used[: len(shown)],
                "color": [_KINDS[row.kind][1] for row in shown],
                "kind": [_KINDS[row.kind][0] for row in shown],
            },
        )
