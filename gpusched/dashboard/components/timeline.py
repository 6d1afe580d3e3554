"""Kernels, transfers and spilling of the last seconds, on one axis of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.events import Reset
from bokeh.models import ColumnDataSource, DatetimeTickFormatter, FactorRange
from dask.utils import natural_sort_key
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.figures import SHOWN, hover, legend_above, plot
from gpusched.dashboard.observer import observer_of
from gpusched.inspection.units import bytes_, flow, seconds
from gpusched.profiling.html import COLORS

WINDOW = 30.0
"""Seconds that are shown."""

_TOLD = {
    "kernel": "kernel",
    "unfused": "unfused: the kernel is not compiled",
    "compile": "compiling, or loading a kernel",
    "transfer": "transfer",
    "compression": "compression",
    "spill": "spilling",
    "unspill": "reading what was spilled",
}
_FORMAT = "%H:%M:%S"


class Timeline(Component):
    """A row for each thread, and for each direction of transfers, of each worker.

    Follows the last seconds in which something happened, until it is moved or zoomed; the reset
    tool makes it follow again.
    """

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.observer = observer_of(scheduler)
        self.source = ColumnDataSource({name: [] for name in _COLUMNS})
        self._set: tuple[float, float] | None = None
        self.root = plot(
            "Timeline", y_range=FactorRange(), x_range=(0, 1e3 * WINDOW), name="gpusched_timeline",
            tools="xpan,xwheel_zoom,xbox_zoom,reset", toolbar_location="right",
            active_scroll="xwheel_zoom", **kwargs,
        )  # fmt: skip
        self.root.hbar(
            y="lane", left="start", right="end", height="height", color="color", line_color="color",
            line_width=1, legend_field="told", source=self.source,
        )  # fmt: skip
        legend_above(self.root)
        self.root.xaxis.formatter = DatetimeTickFormatter(
            microseconds="%fus", milliseconds="%3Nms", seconds=_FORMAT, minsec=_FORMAT,
            minutes=_FORMAT, hourmin=_FORMAT, hours=_FORMAT,
        )  # fmt: skip
        self.root.xaxis.axis_label = "time of the scheduler's clock, UTC"
        self.root.yaxis.axis_label = "worker: what"
        self.root.on_event(Reset, self._follow)
        hover(self.root, [("", "@name"), ("", "@told, @lane"), ("time", "@lasts"), ("", "@moved")])

    def _follow(self, event: Any) -> None:
        self._set = None

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show the last seconds."""
        self.observer.look()
        spans = list(self.observer.spans)
        if not spans:
            self.root.title.text = "Timeline: nothing has happened since this was opened"
            return
        last = max(span[3] for _, span in spans)
        spans = [(worker, span) for worker, span in spans if span[3] > last - WINDOW]
        lanes = _lanes(spans)
        left = self.observer.left_out
        self.root.title.text = f"Kernels, transfers and spilling: {len(spans):,} shown" + (
            f"; {left:,} shorter ones were left out" if left else ""
        )
        self.root.y_range.factors = lanes[::-1]
        self._move(1e3 * (last - WINDOW), 1e3 * last)
        known = set(lanes)
        update(self.source, _columns(each for each in spans if _lane(*each) in known))

    def _move(self, start: float, end: float) -> None:
        """Follow what happens, unless somebody has moved the axis."""
        shown = self.root.x_range
        if self._set is not None and self._set != (shown.start, shown.end):
            return
        self._set = shown.start, shown.end = start, end


_COLUMNS = ("lane", "start", "end", "height", "color", "told", "name", "lasts", "moved")

_ROWS = {"receive": "received", "send": "sent", "MainThread": "event loop"}


def _lane(worker: str, span: Sequence[Any]) -> str:
    """Return the row of a span."""
    kind, _, _, _, thread, _ = span
    worker = worker.rpartition("/")[2]
    if kind in ("spill", "unspill") and "mover" in thread:
        return f"{worker}: spilling"
    if thread in _ROWS:
        return f"{worker}: {_ROWS[thread]}"
    number = thread.rpartition("_")[2].rpartition("-")[2]
    return f"{worker}: thread {number}" if number.isdecimal() else f"{worker}: {thread}"


def _lanes(spans: Iterable[tuple[str, Sequence[Any]]]) -> list[str]:
    """Return the rows that are shown: the busiest, in the order of their names."""
    busy: Counter[str] = Counter()
    for worker, span in spans:
        busy[_lane(worker, span)] += span[3] - span[2]
    return sorted((lane for lane, _ in busy.most_common(SHOWN)), key=natural_sort_key)


def _columns(spans: Iterable[tuple[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    data: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for worker, span in spans:
        kind, name, start, end, _, nbytes = span
        lasts = max(end - start, 1e-9)
        data["lane"].append(_lane(worker, span))
        data["start"].append(1e3 * start)
        data["end"].append(1e3 * end)
        data["height"].append(0.8 if kind in ("kernel", "transfer", "spill", "unspill") else 0.5)
        data["color"].append(COLORS[kind][0])
        data["told"].append(_TOLD[kind])
        data["name"].append(name)
        data["lasts"].append(seconds(lasts))
        data["moved"].append(f"{bytes_(nbytes)}, {flow(nbytes / lasts)}" if nbytes else "")
    return data
