"""One picture of all works: how many times faster than dask on threads each contender is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.contenders import LIMITS
from tests.benchmarks.results import Results
from tests.benchmarks.works import WORKS

OURS = "#c2410c"
LOOKS = {
    "gpusched": {"marker": "D", "color": OURS, "markersize": 7, "zorder": 5},
    "gpusched-cluster": {"marker": "D", "color": OURS, "markersize": 7, "markerfacecolor": "none"},
    "dask": {"marker": "|", "color": "#334155", "markersize": 11},
    "triad": {"marker": ">", "color": "#94a3b8"},
    "copy": {"marker": "4", "color": "#94a3b8", "markersize": 10},
}
OTHERS = "osv^P*Xph"


def write(path: Path, results: Results) -> None:
    """Draw a row for each work and dtype, and a mark for each contender."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text as text: small, and searchable. The salt makes equal pictures equal files.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpusched", "font.size": 9}):
        rows = sum(bool(measured.timings) for measured in results.values())
        figure = Figure((9, 1.6 + 0.26 * rows), layout="constrained")
        _draw(figure.subplots(), results)
        figure.savefig(path, metadata={"Date": None})


def _draw(axes: Any, results: Results) -> None:
    others = iter(OTHERS)
    results = {row: measured for row, measured in results.items() if measured.timings}
    for name in report.shown(results):
        ratios = [report.ratio(measured.timings, name) for measured in results.values()]
        look = LOOKS.get(name) or {"marker": next(others), "markersize": 5, "alpha": 0.75}
        places = [(value, row) for row, value in enumerate(ratios) if value is not None]
        if places:
            axes.plot(*zip(*places, strict=True), linestyle="none", label=name, **look)
    axes.axvline(1, color="#334155", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_yticks(
        range(len(results)), [f"{WORKS[work].label}, {dtype}" for work, dtype in results]
    )
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.grid(axis="y", linewidth=0.3)
    axes.set_xlabel(f"times faster than dask on threads ({', '.join(LIMITS)}: computing nothing)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.05), ncols=7, frameon=False)
