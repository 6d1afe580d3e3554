"""All kernels as a table, and the source of the one that is clicked."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.layouts import row
from bokeh.models import ColumnDataSource
from bokeh.models.widgets import (
    DataTable,
    NumberFormatter,
    PreText,
    TableColumn,
)
from distributed.utils import log_errors

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.figures import INK, replace
from gpusched.dashboard.observer import observer_of

_ASK = "Click a kernel to see its source."
_NONE = """No kernels have run yet.
Where fusion is on, by gpusched.enable(), tasks run as
in plain dask until theirs are compiled: see Compiling."""


class KernelTable(Component):
    """A row per kernel. The source of the chosen one is fetched from a worker."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.observer = observer_of(scheduler)
        self.chosen: tuple[str, str] | None = None
        self.source = ColumnDataSource({name: [] for name in _COLUMNS})
        self.source.selected.on_change("indices", self._choose)
        sizing = kwargs.pop("sizing_mode", "stretch_both")
        self.table = DataTable(
            source=self.source, columns=_columns(), index_position=None, reorderable=False,
            sizing_mode=sizing, min_width=620, name="gpusched_kernel_table",
        )  # fmt: skip
        self.text = PreText(
            text=_NONE, sizing_mode=sizing, min_width=240, name="gpusched_kernel_source",
            styles={"overflow": "auto", "color": INK, "font-size": "12px", "padding": "0 1em"},
        )  # fmt: skip
        self.root = row(self.table, self.text, sizing_mode=sizing)

    def _choose(self, attribute: str, old: list[int], new: list[int]) -> None:
        """Note which kernel was clicked."""
        if not new:
            return
        chosen = self.source.data["name"][new[0]], self.source.data["device"][new[0]]
        if chosen != self.chosen:
            self.chosen = chosen
            self.observer.sources.pop(chosen, None)
            self.observer.ask_source(*chosen)
            self._show()

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what is known of kernels now."""
        self.observer.look()
        rows = self.observer.launches.rows(self.observer.fusion.launches.values())
        data = {name: [read(found) for found in rows] for name, read in _COLUMNS.items()}
        replace(self.table, data)
        names = list(zip(data["name"], data["device"], strict=True))
        if self.chosen in names and self.source.selected.indices != [names.index(self.chosen)]:
            # It has moved, as others took longer.
            self.source.selected.indices = [names.index(self.chosen)]
        self._show()

    def _show(self) -> None:
        if self.chosen is None:
            self.text.text = _ASK if len(self.source.data["name"]) else _NONE
            return
        source = self.observer.sources.get(self.chosen)
        if source is None:
            self.text.text = f"{self.chosen[0]}: asking a worker for its source ..."
        elif not source:
            self.text.text = (
                f"{self.chosen[0]}: no worker has a generated source of that name. The kernel was "
                "written by hand (then it is your own function), or its worker has left."
            )
        else:
            self.text.text = source


_NAN = float("nan")

_COLUMNS = {
    "name": lambda found: found.name,
    "device": lambda found: found.device,
    "launches": lambda found: found.launches,
    "timed": lambda found: found.timed.launches or _NAN,
    "seconds": lambda found: found.timed.seconds or _NAN,
    "mean": lambda found: 1e3 * found.mean or _NAN,
    "rate": lambda found: found.rate / 1e9 or _NAN,
    "share": lambda found: _NAN if found.share is None else found.share,
}
"""How the columns follow from a `Row`."""


def _columns() -> list[TableColumn]:
    def number(form: str) -> NumberFormatter:
        return NumberFormatter(format=form, nan_format="-", text_align="right")

    return [
        TableColumn(field="name", title="kernel", width=330),
        TableColumn(field="device", title="on", width=35),
        TableColumn(field="launches", title="launches", width=65, formatter=number("0,0")),
        TableColumn(field="timed", title="timed", width=50, formatter=number("0,0")),
        TableColumn(field="seconds", title="seconds", width=65, formatter=number("0,0.000")),
        TableColumn(field="mean", title="ms each", width=60, formatter=number("0,0.00")),
        TableColumn(field="rate", title="GB/s", width=45, formatter=number("0,0.0")),
        TableColumn(field="share", title="of limit", width=55, formatter=number("0 %")),
    ]
