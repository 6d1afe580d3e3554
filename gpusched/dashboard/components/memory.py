"""The memory of each worker, by tier."""

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
    limits,
    more,
    plot,
)
from gpusched.dashboard.devices import TIERS, Device, devices
from gpusched.inspection.units import bytes_

COLORS = {
    "device": "#76b900",
    "pool": "#c9e29a",
    "results": "#3f7fcf",
    "buffers": "#a3c6ee",
    "other": "#b3bcc7",
    "disk": "#cf4b45",
}


class Memory(Component):
    """A bar per worker: what is on its GPU, in host memory, and on disk."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.source = ColumnDataSource({"label": [], "told": [], "limit": [], **_tiers([])})
        self.root = plot("Memory by tier", y_range=FactorRange(), name="gpusched_memory", **kwargs)
        self.root.hbar_stack(
            list(TIERS), y="label", height=0.7, color=list(COLORS.values()), source=self.source,
            legend_label=list(TIERS.values()), line_color=None, name="tiers",
        )  # fmt: skip
        limits(self.root, self.source, "limit")
        legend_above(self.root)
        in_bytes(self.root.xaxis)
        hover(self.root, [("worker", "@label"), ("", "@told{safe}")])

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what workers reported last."""
        rows = devices(self.scheduler.workers.values())
        total = {tier: sum(row.tiers[tier] for row in rows) for tier in TIERS}
        host = sum(total[tier] for tier in ("results", "buffers", "other"))
        gpu = f"{bytes_(total['device'] + total['pool'])} on GPUs, " if _has_gpu(rows) else ""
        self.root.title.text = (
            f"Memory by tier: {gpu}{bytes_(host)} on hosts, {bytes_(total['disk'])} on disk"
            + more(rows)
            if rows
            else "Memory by tier: no worker is there yet"
        )
        for item in self.root.legend[0].items:
            item.visible = _has_gpu(rows) or not item.label.value.startswith("GPU")
        shown = first(rows)
        self.root.y_range.factors = [row.label for row in reversed(shown)]
        self.root.x_range.end = max(
            [1 << 20, *(1.05 * max(row.limit, sum(row.tiers.values())) for row in shown)]
        )
        update(
            self.source,
            {
                "label": [row.label for row in shown],
                "told": [_told(row) for row in shown],
                "limit": [row.limit or float("nan") for row in shown],
                **_tiers(shown),
            },
        )


def _tiers(rows: list[Device]) -> dict[str, list[int]]:
    return {tier: [row.tiers[tier] for row in rows] for tier in TIERS}


def _has_gpu(rows: list[Device]) -> bool:
    return any(row.kind == "cuda" for row in rows)


def _told(row: Device) -> str:
    """Return the tiers in words, a line each."""
    lines = [f"{TIERS[tier]}: {bytes_(nbytes)}" for tier, nbytes in row.tiers.items() if nbytes]
    limit = f"limit: {bytes_(row.limit)}" if row.limit else "no limit"
    return "<br>".join([f"{row.name}", *lines, limit])
