"""The kernels that took the longest: their time, and their bytes per second against the limit."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.layouts import row
from bokeh.models import ColumnDataSource, FactorRange
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.figures import hover, legend_above, limits, plot
from gpusched.dashboard.launches import Row
from gpusched.dashboard.observer import observer_of
from gpusched.inspection.units import flow, seconds

SHOWN = 12
"""Kernels."""
_LONGEST = 34
"""Characters of a line; longer names take two."""


class KernelBars(Component):
    """Two bars per kernel. Times are taken while somebody looks."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.observer = observer_of(scheduler)
        self.source = ColumnDataSource(
            {name: [] for name in ("label", "name", "device", "seconds", "rate", "limit", "told")}
        )
        sizing = kwargs.pop("sizing_mode", "stretch_both")
        labels = FactorRange()
        self.times = plot("Time in kernels", y_range=labels, sizing_mode=sizing, **kwargs)
        self.times.hbar(y="label", right="seconds", height=0.7, color="#2f9e62", line_color=None,
                        source=self.source, legend_label="all launches")  # fmt: skip
        self.times.xaxis.axis_label = "seconds, summed over threads"
        self.rates = plot("Bytes per second", y_range=labels, sizing_mode=sizing, **kwargs)
        self.rates.hbar(y="label", right="rate", height=0.7, color="#3f7fcf", line_color=None,
                        source=self.source,
                        legend_label="read and written by a launch")  # fmt: skip
        limits(self.rates, self.source, "what memory lets it")
        self.rates.yaxis.visible = False
        self.rates.xaxis.axis_label = "GB/s"
        for found in (self.times, self.rates):
            legend_above(found)
            hover(found, [("kernel", "@name"), ("", "@told{safe}")])
        self.root = row(self.times, self.rates, sizing_mode=sizing, name="gpusched_kernels")

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what is known of kernels now."""
        self.observer.look()
        rows = self.observer.launches.rows(self.observer.fusion.launches.values())
        timed = [found for found in rows if found.timed.seconds]
        total = sum(found.timed.seconds for found in timed)
        self.times.title.text = (
            f"Time in kernels: {seconds(total)} since this was opened"
            if timed
            else "Time in kernels: no kernel has run since this was opened"
            if rows
            else "Time in kernels: no kernels have run yet"
        )
        shown = timed[:SHOWN]
        self.times.y_range.factors = [_short(found) for found in reversed(shown)]
        self.times.x_range.end = 1.05 * max([1e-3, *(found.timed.seconds for found in shown)])
        self.rates.x_range.end = 1.05 * max(
            [1, *(max(found.rate, found.limit or 0) / 1e9 for found in shown)]
        )
        self.rates.title.text = "Bytes per second" + (
            ", the limit is not measured yet (it is when nothing runs)"
            if any(found.limit is None for found in shown)
            else ""
        )
        update(self.source, _columns(shown))


def _columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {
        "label": [_short(found) for found in rows],
        "name": [found.name for found in rows],
        "device": [found.device for found in rows],
        "seconds": [found.timed.seconds for found in rows],
        "rate": [found.rate / 1e9 for found in rows],
        "limit": [(found.limit or float("nan")) / 1e9 for found in rows],
        "told": [_told(found) for found in rows],
    }


def label(name: str, device: str) -> str:
    """Return a kernel's name, on two lines where it is long, with the device if not the CPU.

    Examples
    --------
    >>> from gpusched.dashboard.components.kernelbars import label
    >>> label("subtract_divide_multiply_add_sqrt_47d7485d", "cpu").splitlines()
    ['subtract_divide_multiply_', 'add_sqrt_47d7485d']
    """
    if len(name) > _LONGEST:
        words = name.split("_")
        middle = min(
            range(1, len(words)),
            key=lambda k: abs(len("_".join(words[:k])) - len(name) / 2),
            default=0,
        )
        name = "_".join(words[:middle]) + "_\n" + "_".join(words[middle:]) if middle else name
    return name if device == "cpu" else f"{name} ({device})"


def _short(found: Row) -> str:
    return label(found.name, found.device)


def _told(found: Row) -> str:
    timed = found.timed
    lines = [
        f"{seconds(timed.seconds)} in {timed.launches:,} launches",
        f"{flow(found.rate)} per launch",
    ]
    if found.share is not None and found.limit is not None:
        lines.append(f"{found.share:.0%} of {flow(found.limit)}")
    return "<br>".join(lines)
