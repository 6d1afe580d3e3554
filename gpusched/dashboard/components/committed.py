"""The memory that each worker has committed: results, reservations, and the rest."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import ColumnDataSource, FactorRange
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from gpusched.dashboard.commitments import PARTS, Commitments, commitments
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
from gpusched.dashboard.components.memory import COLORS
from gpusched.inspection.units import bytes_

_COLORS = {
    "unmanaged": COLORS["other"],
    "held": COLORS["results"],
    "in_flight": COLORS["buffers"],
    "reserved": "#e9c46a",
}


class CommittedByWorker(Component):
    """A bar per worker: what is in its memory, what running tasks may still take, and the limit."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.source = ColumnDataSource({"label": [], "told": [], "limit": [], **_parts([])})
        self.root = plot("Memory", y_range=FactorRange(), name="gpusched_committed", **kwargs)
        self.root.hbar_stack(
            list(PARTS), y="label", height=0.7, color=list(_COLORS.values()), source=self.source,
            legend_label=list(PARTS.values()), line_color=None,
        )  # fmt: skip
        limits(self.root, self.source, "limit for tasks")
        legend_above(self.root)
        in_bytes(self.root.xaxis)
        hover(self.root, [("worker", "@label"), ("", "@told{safe}")])

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what workers reported last."""
        rows = commitments(self.scheduler.workers.values())
        self.root.title.text = _title(rows)
        shown = first(rows)
        self.root.y_range.factors = [row.label for row in reversed(shown)]
        self.root.x_range.end = max([1 << 20, *(1.05 * max(row.limit, row.total) for row in shown)])
        update(
            self.source,
            {
                "label": [row.label for row in shown],
                "told": [_told(row) for row in shown],
                "limit": [row.limit or float("nan") for row in shown],
                **_parts(shown),
            },
        )


def _title(rows: list[Commitments]) -> str:
    if not rows:
        return "Memory for tasks: no worker is there yet"
    total = {part: sum(row.parts[part] for row in rows) for part in PARTS}
    told = ", ".join(f"{bytes_(total[part])} {name}" for part, name in PARTS.items())
    return f"Memory for tasks: {told}{more(rows)}"


def _parts(rows: list[Commitments]) -> dict[str, list[int]]:
    return {part: [row.parts[part] for row in rows] for part in PARTS}


def _told(row: Commitments) -> str:
    """Return the parts in words, a line each."""
    lines = [f"{PARTS[part]}: {bytes_(nbytes)}" for part, nbytes in row.parts.items() if nbytes]
    limit = f"limit: {bytes_(row.limit)}" if row.limit else "no limit"
    return "<br>".join([*lines, limit])
