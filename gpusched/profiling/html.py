"""A profile as one page: the timeline to zoom into, and the tables. It needs no other file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusched.inspection.units import bytes_, flow, seconds
from gpusched.profiling.kernels import KernelRow
from gpusched.profiling.text import TOLD, cluster, idle, summary
from gpusched.profiling.timeline import KINDS, Process, Span, Timeline

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


def page(found: Profile) -> str:
    """Return a profile as a whole page.

    Parameters
    ----------
    found
        The profile.
    """
    here = Path(__file__).parent
    spans = _shown(found.timeline)
    used = [kind for kind in KINDS if any(span.kind == kind for span in spans)]
    left_out = len(found.timeline.spans) - len(spans)
    parts = [
        "<h1>gpusched profile</h1>",
        f"<p>{escape(summary(found))}</p>",
        f'<p class="soft">{escape(idle(found))}</p>' if found.threads else "",
        *(f'<p class="note">Missing: {escape(note)}</p>' for note in found.notes),
        f'<p class="note">{left_out:,} of the shortest spans are not shown.</p>'
        if left_out
        else "",
        _legend(used),
        '<div id="view"><canvas id="axis"></canvas><div id="scroll"><canvas id="lanes"></canvas>'
        "</div></div>",
        '<p class="soft">Wheel, + and -: zoom. Drag and arrows: move. Double click and 0: '
        "everything. Shift and wheel: scroll.</p>",
        '<div id="tip"></div>',
        _spent(found),
        _kernels(found),
        _outside(found),
        _contention(found),
        "".join(f'<p class="soft">{escape(line)}</p>' for line in cluster(found)),
    ]
    style = (here / "page.css").read_text(encoding="utf-8")
    script = (here / "page.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<title>gpusched profile</title><style>\n{style}</style></head><body>\n"
        + "\n".join(parts)
        + f'\n<script type="application/json" id="data">{_json(_data(found, spans, used))}'
        f"</script>\n<script>\n{script}</script></body></html>\n"
    )


def framed(found: Profile) -> str:
    """Return the page within a frame, as notebooks show it."""
    return (
        f'<iframe srcdoc="{escape(page(found))}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
    )


def _json(data: Any) -> str:
    # Nothing in it may look like the script's end.
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


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


def _legend(used: list[str]) -> str:
    buttons = (
        f'<button data-kind="{number}"><i style="background: {COLORS[kind][0]}"></i>'
        f"{escape(TOLD[kind])}</button>"
        for number, kind in enumerate(used)
    )
    return f'<div id="legend">{"".join(buttons)}</div>'


def _table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    titles = "".join(
        f'<th class="n">{escape(title[1:])}</th>'
        if title.startswith(">")
        else f"<th>{escape(title)}</th>"
        for title in head
    )
    lines = "".join(f"<tr>{''.join(cells)}</tr>" for cells in body)
    return (
        f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody>'
        "</table></div>"
    )


def _cell(content: str) -> str:
    return f"<td>{escape(content)}</td>"


def _number(content: str) -> str:
    return f'<td class="n">{escape(content)}</td>'


def _spent(found: Profile) -> str:
    if not found.spent:
        return ""
    most = max(found.spent.values())
    body = [
        [
            _cell(TOLD[kind]),
            _number(seconds(spent)),
            f'<td><span class="bar" style="width: {max(1, round(240 * spent / most))}px; '
            f'background: {COLORS[kind][0]}"></span></td>',
        ]
        for kind, spent in sorted(found.spent.items(), key=lambda item: -item[1])
    ]
    title = "<h2>Where the time went, summed over threads</h2>"
    return title + _table(("", ">time", ""), body)


def _kernels(found: Profile) -> str:
    if not found.kernels:
        return ""
    head = ("kernel", ">launches", ">in all", ">median", ">bytes", ">per launch", ">of the limit",
            "lines")  # fmt: skip
    return "<h2>Kernels</h2>" + _table(head, [_kernel(row) for row in found.kernels])


def _kernel(row: KernelRow) -> Iterator[str]:
    device = "" if row.device == "cpu" else f" on {row.device}"
    yield f"<td><code>{escape(row.name)}</code>{escape(device)}</td>"
    yield _number(f"{row.launches:,}")
    yield _number(seconds(row.seconds))
    yield _number(seconds(row.median_seconds))
    yield _number(bytes_(row.nbytes))
    yield _number(flow(row.rate))
    known = row.share is not None and row.limit is not None
    yield _number(f"{row.share:.0%} of {flow(row.limit)}" if known else "not measured")  # type: ignore[arg-type]
    yield "<td>" + "<br>".join(
        f"{escape(str(place))} <code>{escape(place.text)}</code>" for place in row.places
    ) + "</td>"  # fmt: skip


def _outside(found: Profile) -> str:
    if not found.outside_kernels:
        return ""
    shown = list(found.outside_kernels.items())[:_TASKS]
    body = [[_cell(name), _number(seconds(spent))] for name, spent in shown]
    return "<h2>Tasks, outside kernels</h2>" + _table(("task", ">in all"), body)


def _contention(found: Profile) -> str:
    if not found.contention:
        return ""
    body = [
        [
            _cell(each.policy),
            _number(f"{each.waits:,}"),
            _number(seconds(each.seconds)),
            _number(seconds(each.longest)),
            _cell(", ".join(each.holders[:3])),
        ]
        for each in found.contention
    ]
    head = ("policy", ">waits", ">in all", ">longest", "held by")
    return "<h2>Waits for thread policies</h2>" + _table(head, body)
