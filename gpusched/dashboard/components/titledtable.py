"""A table under a line of text that says what it amounts to."""

from __future__ import annotations

from typing import Any

from bokeh.layouts import column
from bokeh.models import ColumnDataSource
from bokeh.models.widgets import DataTable, Div, TableColumn

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.figures import INK
from gpusched.dashboard.observer import observer_of


class TitledTable(Component):
    """A table whose title and rows `update` sets."""

    def __init__(
        self, scheduler: Any, name: str, columns: list[TableColumn], **kwargs: Any
    ) -> None:
        self.observer = observer_of(scheduler)
        self.source = ColumnDataSource({each.field: [] for each in columns})
        sizing = kwargs.pop("sizing_mode", "stretch_both")
        self.title = Div(styles={"color": INK, "font-weight": "bold", "font-size": "13px"})
        self.table = DataTable(
            source=self.source, columns=columns, index_position=None, reorderable=False,
            sizing_mode=sizing, name=name,
        )  # fmt: skip
        self.root = column(self.title, self.table, sizing_mode=sizing)
