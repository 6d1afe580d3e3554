"""Kernels that are being compiled while tasks go on without them."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models.widgets import NumberFormatter, TableColumn
from distributed.utils import log_errors

from gpusched.dashboard.components.figures import replace
from gpusched.dashboard.components.titledtable import TitledTable
from gpusched.quantities import count

_WHEN = {True: "beside tasks", False: "in idle time"}
"""Short enough for a table beside other windows."""


class Compiling(TitledTable):
    """A row for each kernel that workers wait for."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        columns = [
            TableColumn(field="kernel", title="kernel", width=340),
            TableColumn(field="seconds", title="seconds without", width=130,
                        formatter=NumberFormatter(format="0.00", text_align="right")),
            TableColumn(field="processes", title="processes", width=80,
                        formatter=NumberFormatter(format="0,0", text_align="right")),
            TableColumn(field="when", title="compiled", width=110),
        ]  # fmt: skip
        super().__init__(scheduler, "gpusched_compiling", columns, **kwargs)

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what is known now."""
        self.observer.look()
        fusion = self.observer.fusion
        waiting = fusion.compiling()
        done = count(fusion.unfused(), "task")
        self.title.text = (
            f"{count(len(waiting), 'kernel')} to be compiled; {done} ran without theirs so far"
        )
        replace(
            self.table,
            {
                "kernel": [each.name for each in waiting],
                "seconds": [each.seconds for each in waiting],
                "processes": [each.processes for each in waiting],
                "when": [_WHEN[each.urgent] for each in waiting],
            },
        )
