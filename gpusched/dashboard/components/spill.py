"""What was spilled from each device, and where that is."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import ColumnDataSource, FactorRange
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.figures import (
    first,
    hover,
    in_bytes,
    legend_above,
    more,
    plot,
)
from gpusched.dashboard.components.memory import COLORS
from gpusched.dashboard.device_reports import devices, short, spilled
from gpusched.inspection.units import bytes_


class Spill(Component):
    """A bar a device, by its UUID: results that were spilled to host memory and to disk."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.source = ColumnDataSource(
            {name: [] for name in ("label", "uuid", "host", "disk", "written", "read", "lost")}
        )
        self.root = plot("Spilled", y_range=FactorRange(), name="gpusched_spill", **kwargs)
        self.root.hbar_stack(
            ["host", "disk"], y="label", height=0.7, color=[COLORS["results"], COLORS["disk"]],
            line_color=None, source=self.source, legend_label=["in host memory", "on disk"],
        )  # fmt: skip
        legend_above(self.root)
        in_bytes(self.root.xaxis)
        hover(
            self.root,
            [("device", "@uuid"), ("in host memory", "@host{0.0 b}"), ("on disk", "@disk{0.0 b}"),
             ("written so far", "@written{0.0 b}"), ("read back", "@read{0.0 b}"),
             ("damaged, computed again", "@lost")],
        )  # fmt: skip

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what workers reported last."""
        rows = spilled(devices(self.scheduler.workers.values()))
        here = sum(row.host + row.disk for row in rows)
        written, read = sum(row.written for row in rows), sum(row.read for row in rows)
        self.root.title.text = (
            f"Spilled, by device: {bytes_(here)} now "
            f"({bytes_(written)} written, {bytes_(read)} read back){more(rows)}"
            if here or written
            else "Spilled, by device: nothing so far"
        )
        shown = first(rows)
        self.root.y_range.factors = [short(row.uuid) for row in reversed(shown)]
        self.root.x_range.end = max([1 << 20, *(1.05 * (row.host + row.disk) for row in shown)])
        update(
            self.source,
            {
                "label": [short(row.uuid) for row in shown],
                **{
                    name: [getattr(row, name) for row in shown]
                    for name in ("uuid", "host", "disk", "written", "read", "lost")
                },
            },
        )
