"""Tasks that wait for memory, and why."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models.widgets import NumberFormatter, TableColumn
from distributed.utils import log_errors

from gpusched.dashboard.commitments import commitments
from gpusched.dashboard.components.figures import first, more, replace
from gpusched.dashboard.components.titledtable import TitledTable
from gpusched.inspection.units import bytes_
from gpusched.quantities import count


class Waiting(TitledTable):
    """A row for each worker: tasks that wait for memory and for what, and those that did so far."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        def number(field: str, title: str, form: str = "0,0") -> TableColumn:
            formatter = NumberFormatter(format=form, text_align="right")
            return TableColumn(field=field, title=title, width=90, formatter=formatter)

        columns = [
            TableColumn(field="worker", title="worker", width=120),
            number("waiting", "waiting"),
            TableColumn(field="reason", title="for", width=300),
            TableColumn(field="spilled", title="on disk", width=90),
            number("waited", "waited so far"),
            number("seconds", "seconds", "0.0"),
            number("pieces", "in pieces"),
            number("refused", "refused"),
        ]
        super().__init__(scheduler, "gpusched_waiting", columns, **kwargs)
        self.scheduler = scheduler

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what workers reported last."""
        rows = commitments(self.scheduler.workers.values())
        waiting = count(sum(row.waiting for row in rows), "task")
        self.title.text = f"Waiting for memory: {waiting}{more(rows)}"
        shown = first(rows)
        replace(
            self.table,
            {
                "worker": [row.label for row in shown],
                "waiting": [row.waiting for row in shown],
                "reason": [row.reason for row in shown],
                "spilled": [bytes_(row.spilled) for row in shown],
                "waited": [row.waited for row in shown],
                "seconds": [row.wait_seconds for row in shown],
                "pieces": [row.in_pieces for row in shown],
                "refused": [row.refused for row in shown],
            },
        )
