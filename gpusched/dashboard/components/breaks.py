"""Graph breaks, why, and what to change."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models.widgets import NumberFormatter, TableColumn
from distributed.utils import log_errors

from gpusched.dashboard.components.figures import replace
from gpusched.dashboard.components.titledtable import TitledTable
from gpusched.quantities import count


class Breaks(TitledTable):
    """A row for each operation that was not fused, and each reason."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        columns = [
            TableColumn(field="operation", title="graph break", width=140),
            TableColumn(field="times", title="times", width=50,
                        formatter=NumberFormatter(format="0,0", text_align="right")),
            TableColumn(field="reason", title="why", width=250),
            TableColumn(field="remedy", title="what to change", width=400),
        ]  # fmt: skip
        super().__init__(scheduler, "gpusched_breaks", columns, **kwargs)

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what is known now."""
        self.observer.look()
        breaks = self.observer.fusion.breaks()
        times = sum(each[2] for each in breaks)
        self.title.text = (
            f"{count(times, 'graph break')}, for these reasons"
            if breaks
            else "No graph breaks"
            if self.observer.fusion.counted().tasks
            else "Graph breaks: nothing has run yet"
        )
        replace(
            self.table,
            {
                "operation": [operation for operation, *_ in breaks],
                "reason": [reason for _, reason, _ in breaks],
                "times": [times for _, _, times in breaks],
                "remedy": [reason.kind.remedy for _, reason, _ in breaks],
            },
        )
