"""A profile as one page: the timeline to zoom into, and the tables. It needs no other file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from gpusched.inspection.units import bytes_, flow, seconds
from gpusched.profiling.kernel_table import KernelRow
from gpusched.profiling.text import NOT_COMPILED, TOLD, cluster, idle, not_compiled, summary
from gpusched.profiling.timeline import KINDS, Process, Span, Timeline
from gpusched.rendering import html
from gpusched.rendering.html import Number

if TYPE_CHECKING:
    from gpusched.profiling.report import Profile

SHOWN = 100_000
"""Spans that a page shows; the shortest are left out first."""

COLORS = {
    "graph": ("#8e6bbf", "#fff"),
    "scheduling": ("#c26aa6", "#fff"),
    "task": ("#b9c4d0", "#1b1f24"),
    "kernel": ("#2f9e62", "#fff"),
    "unfused": ("#a3b86c", "#1b1f24"),
    "compile": ("#e0872e", "#1b1f24"),
    "transfer": ("#3f7fcf", "#fff"),
    "compression": ("#2aa5b5", "#fff"),
    "spill": ("#cf4b45", "#fff"),
    "unspill": ("#e58f8a", "#1b1f24"),
    "wait": ("#e8c33a", "#1b1f24"),
}
"""Of the kinds of spans, and of the writing on them."""

_TASKS = 20
"""Names of tasks that are listed."""
_HEIGHT = 760
"""Pixels of a page within a notebook."""

_VIEW = Markup(
    '<div id="view"><canvas id="axis"></canvas><div id="scroll"><canvas id="lanes"></canvas>'
    '</div></div><p class="soft">Wheel, + and -: zoom. Drag and arrows: move. Double click and 0: '
    'everything. Shift and wheel: scroll.</p><div id="tip"></div>'
)
"""What the page's script draws into."""


def page(found: Profile) -> str:
    """Return a profile as a whole page."""
    here = Path(__file__).parent
    spans = _shown(found.timeline)
    used = [kind for kind in KINDS if any(span.kind == kind for span in spans)]
    left_out = len(found.timeline.spans) - len(spans)
    notes = [f"Missing: {note}" for note in found.notes]
    notes += [f"{left_out:,} of the shortest spans are not shown."] if left_out else []
    return html.page(
        "gpusched profile",
        Markup("<h1>gpusched profile</h1>"),
        html.paragraph(summary(found)),
        html.paragraph(idle(found), "soft") if found.threads else "",
        *(html.paragraph(note, "note") for note in notes),
        _legend(used),
        _VIEW,
        _spent(found),
        _kernels(found),
        _unfused(found),
        _outside(found),
        _contention(found),
        *(html.paragraph(line, "soft") for line in cluster(found)),
        Markup('<script type="application/json" id="data">{}</script>').format(
            _json(_data(found, spans, used))
        ),
        style=(here / "viewer.css").read_text(encoding="utf-8"),
        script=(here / "viewer.js").read_text(encoding="utf-8"),
    )


def framed(found: Profile) -> str:
    """Return the page within a frame, as notebooks show it."""
    return html.framed(page(found), _HEIGHT)


def _json(data: Any) -> Markup:
    # Nothing in it may look like the script's end.
    return Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"))


def _shown(timeline: Timeline) -> list[Span]:
    if len(timeline.spans) <= SHOWN:
        return timeline.spans
    least = sorted((span.seconds for span in timeline.spans), reverse=True)[SHOWN]
    return [span for span in timeline.spans if span.seconds > least]


def _data(found: Profile, spans: list[Span], used: list[str]) -> dict[str, Any]:
    """Return what the page's script draws; times in microseconds."""
    timeline = found.timeline
    names, places = _Numbers(), _Numbers()
    depths = [0] * len(timeline.lanes)
    rows = []
    for span in spans:
        depths[span.lane] = max(depths[span.lane], span.depth)
        told = tuple(f"{place}  {place.text}" for place in span.places)
        rows.append(
            [span.lane, span.depth, used.index(span.kind), names.of(span.name),
             round(1e6 * span.start, 1), round(1e6 * span.seconds, 1), span.nbytes,
             places.of(told), span.detail, span.task]
        )  # fmt: skip
    return {
        "seconds": found.seconds,
        "kinds": [
            {"told": TOLD[kind], "color": COLORS[kind][0], "ink": COLORS[kind][1]} for kind in used
        ],
        "processes": [_process(process) for process in timeline.processes],
        "lanes": [
            {"process": lane.process, "name": lane.name, "depth": depth}
            for lane, depth in zip(timeline.lanes, depths, strict=True)
        ],
        "names": names.found,
        "places": places.found,
        "spans": rows,
    }


class _Numbers:
    """Numbers of things that repeat."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def of(self, thing: Any) -> int:
        number = self._numbers.setdefault(thing, len(self.found))
        if number == len(self.found):
            self.found.append(thing)
        return number


def _process(process: Process) -> str:
    clock = f", clock known to {seconds(process.accuracy)}" if process.accuracy else ""
    return f"{process.name}  ({process.host}, process {process.pid}{clock})"


def _legend(used: list[str]) -> Markup:
    button = Markup('<button data-kind="{}"><i style="background: {}"></i>{}</button>')
    buttons = (button.format(n, COLORS[kind][0], TOLD[kind]) for n, kind in enumerate(used))
    return Markup('<div id="legend">{}</div>').format(html.joined(*buttons))


def _spent(found: Profile) -> Markup:
    if not found.spent:
        return Markup("")
    most = max(found.spent.values())
    bar = Markup('<span class="bar" style="width: {}px; background: {}"></span>')
    body = [
        (TOLD[kind], Number(seconds(spent)),
         bar.format(max(1, round(240 * spent / most)), COLORS[kind][0]))
        for kind, spent in sorted(found.spent.items(), key=lambda item: -item[1])
    ]  # fmt: skip
    return _section("Where the time went, summed over threads", ("", Number("time"), ""), body)


def _kernels(found: Profile) -> Markup:
    numbers = ("launches", "in all", "median", "bytes", "per launch", "of the limit")
    head = ("kernel", *map(Number, numbers), "lines")
    return _section("Kernels", head, [_kernel(row) for row in found.kernels])


def _kernel(row: KernelRow) -> Iterator[str]:
    device = "" if row.device == "cpu" else f" on {row.device}"
    yield html.joined(html.code(row.name), device)
    yield Number(f"{row.launches:,}")
    yield Number(seconds(row.seconds))
    yield Number(seconds(row.median_seconds))
    yield Number(bytes_(row.nbytes))
    yield Number(flow(row.rate))
    known = row.share is not None and row.limit is not None
    yield Number(f"{row.share:.0%} of {flow(row.limit)}" if known else "not measured")  # type: ignore[arg-type]
    yield Markup("<br>").join(
        html.joined(f"{place} ", html.code(place.text)) for place in row.places
    )


def _unfused(found: Profile) -> Markup:
    body = [
        (html.code(name), Number(f"{tasks:,}"), Number(seconds(spent)))
        for name, tasks, spent in not_compiled(found)[:_TASKS]
    ]
    head = ("kernel", *map(Number, ("tasks without it", "in all")))
    return _section(NOT_COMPILED, head, body)


def _outside(found: Profile) -> Markup:
    shown = list(found.outside_kernels.items())[:_TASKS]
    body = [(name, Number(seconds(spent))) for name, spent in shown]
    return _section("Tasks, outside kernels", ("task", Number("in all")), body)


def _contention(found: Profile) -> Markup:
    body = [
        (each.policy, Number(f"{each.waits:,}"), Number(seconds(each.seconds)),
         Number(seconds(each.longest)), ", ".join(each.holders[:3]))
        for each in found.contention
    ]  # fmt: skip
    head = ("policy", *map(Number, ("waits", "in all", "longest")), "held by")
    return _section("Waits for thread policies", head, body)


def _section(title: str, head: Iterable[str], body: list[Any]) -> Markup:
    return html.joined(html.heading(title), html.table(head, body)) if body else Markup("")
