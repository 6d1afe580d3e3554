"""What all plots have in common: colours that dark and light pages can show, and empty figures."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

from bokeh.models import AllIndices, BasicTicker, HoverTool, NumeralTickFormatter, Range1d
from bokeh.models.annotations import Title
from bokeh.plotting import figure

INK = "#7d858e"
"""Of writing and lines: readable on the light page, and on a dark notebook's."""
_GRID = "#8a93a0"
LIMIT = "#e0872e"
"""Of what bars cannot exceed."""

SHOWN = 40
"""Bars and rows at most; a title says how many more there are."""


def plot(title: str, **kwargs: Any) -> Any:
    """Return a figure with a clear background and no tools."""
    settings = {"tools": "", "toolbar_location": None, "x_range": Range1d(start=0, end=1), **kwargs}
    # No text: while another thread's dashboard updates, bokeh does not turn texts into titles.
    found: Any = figure(title=Title(text=title, text_color=INK), **settings)
    found.axis.axis_label_text_color = found.axis.major_label_text_color = INK
    found.axis.axis_line_color = found.axis.major_tick_line_color = INK
    found.axis.axis_label_text_font_style = "normal"
    found.axis.minor_tick_line_color = None
    found.outline_line_color = None
    found.grid.grid_line_color, found.grid.grid_line_alpha = _GRID, 0.25
    found.ygrid.grid_line_color = None
    return found


def in_bytes(axis: Any, unit: str = "b") -> None:
    """Have an axis show bytes."""
    axis.formatter = NumeralTickFormatter(format=f"0.0 {unit}")
    axis.ticker = BasicTicker(base=1024, mantissas=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
                              desired_num_ticks=5)  # fmt: skip


def legend_above(found: Any) -> None:
    """Put a figure's legend above it, in one line."""
    (legend,) = found.legend
    legend.orientation, legend.border_line_color = "horizontal", None
    legend.background_fill_alpha, legend.label_text_color = 0, INK
    legend.label_text_font_size, legend.padding, legend.spacing = "11px", 0, 10
    legend.glyph_width = legend.glyph_height = 12
    found.add_layout(legend, "above")


def hover(found: Any, tooltips: list[tuple[str, str]], **kwargs: Any) -> None:
    """Have a figure show what is under the pointer."""
    found.add_tools(HoverTool(tooltips=tooltips, point_policy="follow_mouse", **kwargs))


def limits(found: Any, source: Any, told: str) -> None:
    """Mark, on each bar of a column ``label``, the end that the column ``limit`` gives."""
    found.scatter(
        "limit", "label", source=source, marker="dash", angle=pi / 2, size=22, line_width=3,
        color=LIMIT, legend_label=told,
    )  # fmt: skip


def replace(table: Any, data: dict[str, list[Any]]) -> None:
    """Give a table other rows, if they differ."""
    if table.source.data != data:
        table.source.data = data
        # bokeh draws a table again where its view changes, which other values in as many rows do
        # not bring about.
        table.view.filter = AllIndices()


def first(rows: Sequence[Any]) -> Sequence[Any]:
    """Return as many rows as are shown."""
    return rows[:SHOWN]


def more(rows: Sequence[Any]) -> str:
    """Return what a title says of rows that are not shown."""
    return f", the first {SHOWN} of {len(rows):,}" if len(rows) > SHOWN else ""
