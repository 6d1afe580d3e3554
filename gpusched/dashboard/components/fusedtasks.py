"""The tasks of each name, before and after fusion."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import ColumnDataSource, FactorRange, NumeralTickFormatter
from bokeh.transform import dodge
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from gpusched.dashboard.components.base import Component
from gpusched.dashboard.components.figures import hover, legend_above, plot
from gpusched.dashboard.fusion_counts import Counted
from gpusched.dashboard.observer import observer_of
from gpusched.quantities import count

SHOWN = 15
"""Names of tasks."""


class FusedTasks(Component):
    """Two bars for the tasks of a name: calls of array functions, and tasks that make them."""

    @log_errors
    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        self.observer = observer_of(scheduler)
        self.source = ColumnDataSource({"label": [], "calls": [], "tasks": []})
        self.root = plot("Tasks", y_range=FactorRange(), name="gpusched_fusion", **kwargs)
        for name, shift, color, told in (
            ("calls", 0.2, "#b3bcc7", "before: calls of array functions, a task each"),
            ("tasks", -0.2, "#2f9e62", "after: tasks"),
        ):
            self.root.hbar(
                y=dodge("label", shift, range=self.root.y_range), right=name, height=0.36,
                color=color, line_color=None, legend_label=told, source=self.source,
            )  # fmt: skip
        legend_above(self.root)
        self.root.xaxis.formatter = NumeralTickFormatter(format="0,0")
        self.root.xaxis.axis_label = "since the scheduler started"
        hover(self.root, [("tasks", "@label"), ("calls before", "@calls{0,0}"),
                          ("tasks after", "@tasks{0,0}")])  # fmt: skip

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Show what is known now."""
        self.observer.look()
        fusion = self.observer.fusion
        ordered = sorted(fusion.by_name.items(), key=lambda item: -item[1].calls)[:SHOWN]
        self.root.title.text = self._title()
        self.root.y_range.factors = [name for name, _ in reversed(ordered)]
        self.root.x_range.end = 1.05 * max([1, *(each.calls for _, each in ordered)])
        update(
            self.source,
            {
                "label": [name for name, _ in ordered],
                "calls": [each.calls for _, each in ordered],
                "tasks": [each.tasks for _, each in ordered],
            },
        )

    def _title(self) -> str:
        fusion = self.observer.fusion
        if not fusion.by_name:
            others = f" ({count(fusion.others, 'task')} without any)" if fusion.others else ""
            return f"Tasks before and after fusion: no fused array function was sent yet{others}"
        calls = sum(each.calls for each in fusion.by_name.values())
        tasks = sum(each.tasks for each in fusion.by_name.values())
        counted = fusion.counted()
        return (
            f"{count(calls, 'call')} of array functions in {count(tasks, 'task')}; so far "
            f"{counted.fused_tasks:,} of {counted.tasks:,} tasks that ran launched "
            f"{count(counted.launches, 'kernel')}{_on_gpus(counted)}"
        )


def _on_gpus(counted: Counted) -> str:
    tasks = counted.device_tasks + counted.host_tasks
    return f"; {counted.device_tasks:,} of {tasks:,} NumPy tasks ran on GPUs" if tasks else ""
