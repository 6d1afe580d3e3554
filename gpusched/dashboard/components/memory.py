"""The memory of each worker: by tier, and as its tasks have committed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bokeh.core.properties import without_property_validation
from bokeh.models import ColumnDataSource, FactorRange
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from gpusched.dashboard.commitments import PARTS, commitments
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
from gpusched.dashboard.device_reports import TIERS, Device, devices
from gpusched.inspection.units import bytes_

COLORS = {
    "device": "#76b900",
    "pool": "#c9e29a",
    "results": "#3f7fcf",
    "buffers": "#a3c6ee",
    "other": "#b3bcc7",
    "disk": "#cf4b45",
}

_COMMITTED = {
    "unmanaged": COLORS["other"],
    "held": COLORS["results"],
    "in_flight": COLORS["buffers"],
    "reserved": "#e9c46a",
}


class _Row(Protocol):
    """One worker's memory."""

    @property
    def label(self) -> str: ...
    @property
    def limit(self) -> int: ...
    @property
    def parts(self) -> dict[str, int]: ...


class _Bars(Component):
    """A bar per worker, in parts, and a mark at its limit."""

    names: Mapping[str, str]
    """What each part is called, from the first to the last."""
    colors: Mapping[str, str]
    limit: str
    """What the mark is called."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.source = ColumnDataSource(self._columns([]))
        self.root = plot("Memory", y_range=FactorRange(), **kwargs)
        self.root.hbar_stack(
            list(self.names), y="label", height=0.7, color=list(self.colors.values()),
            source=self.source, legend_label=list(self.names.values()), line_color=None,
            name="parts",
        )  # fmt: skip
        limits(self.root, self.source, self.limit)
        legend_above(self.root)
        in_bytes(self.root.xaxis)
        hover(self.root, [("worker", "@label"), ("", "@told{safe}")])

    def show(self, title: str, rows: Sequence[_Row]) -> None:
        """Show a title, and what workers reported last."""
        self.root.title.text = (
            f"{title}{more(rows)}" if rows else f"{title.partition(':')[0]}: no worker is there yet"
        )
        shown = first(rows)
        self.root.y_range.factors = [row.label for row in reversed(shown)]
        taken = (max(row.limit, sum(row.parts.values())) for row in shown)
        self.root.x_range.end = max([1 << 20, *(1.05 * each for each in taken)])
        update(self.source, self._columns(shown))

    def _columns(self, rows: Sequence[_Row]) -> dict[str, list[Any]]:
        return {
            "label": [row.label for row in rows],
            "told": [self._told(row) for row in rows],
            "limit": [row.limit or float("nan") for row in rows],
            **{part: [row.parts[part] for row in rows] for part in self.names},
        }

    def _told(self, row: _Row) -> str:
        """Return the parts in words, a line each."""
        taken = [(self.names[part], nbytes) for part, nbytes in row.parts.items() if nbytes]
        lines = [f"{name}: {bytes_(nbytes)}" for name, nbytes in taken]
        return "<br>".join([*lines, f"limit: {bytes_(row.limit)}" if row.limit else "no limit"])


class Memory(_Bars):
    """A bar per worker: what is on its GPU, in host memory, and on disk."""

    names, colors, limit = TIERS, COLORS, "limit"

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, name="gpusched_memory", **kwargs)

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what workers reported last."""
        rows = devices(self.scheduler.workers.values())
        total = {tier: sum(row.parts[tier] for row in rows) for tier in TIERS}
        host = sum(total[tier] for tier in ("results", "buffers", "other"))
        has_gpu = any(row.kind == "cuda" for row in rows)
        gpu = f"{bytes_(total['device'] + total['pool'])} on GPUs, " if has_gpu else ""
        for item in self.root.legend[0].items:
            item.visible = has_gpu or not item.label.value.startswith("GPU")
        disk = bytes_(total["disk"])
        sent = _sent(rows)  # Here, where there is most room.
        self.show(f"Memory by tier: {gpu}{bytes_(host)} on hosts, {disk} on disk{sent}", rows)

    def _told(self, row: Device) -> str:  # type: ignore[override]
        return f"{row.name}<br>{super()._told(row)}"


def _sent(rows: list[Device]) -> str:
    """Return what workers have sent of their GPUs' memory; nothing if they have sent none."""
    between, through = sum(row.between for row in rows), sum(row.through_host for row in rows)
    if not between and not through:
        return ""
    return f"; sent {bytes_(between)} GPU to GPU, {bytes_(through)} through hosts"


class CommittedByWorker(_Bars):
    """A bar per worker: what is in its memory, what running tasks may still take, and the limit."""

    names, colors, limit = PARTS, _COMMITTED, "limit for tasks"

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, name="gpusched_committed", **kwargs)

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what workers reported last."""
        rows = commitments(self.scheduler.workers.values())
        total = {part: sum(row.parts[part] for row in rows) for part in PARTS}
        told = ", ".join(f"{bytes_(total[part])} {name}" for part, name in PARTS.items())
        self.show(f"Memory for tasks: {told}", rows)
