"""An explanation as HTML, for Jupyter: one table of stages, the rest folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

from gpusched.inspection.kernels import ExplainedKernel
from gpusched.inspection.model import Stage
from gpusched.inspection.text import (
    chunks,
    merged,
    moving,
    profile,
    results,
    rows,
    shows,
    summary,
    waits,
)
from gpusched.inspection.units import bytes_, seconds

if TYPE_CHECKING:
    from gpusched.inspection.explanation import Explanation

_STYLE = """
.gpusched-explain { font-size: 13px; max-width: 1100px; overflow-x: auto; }
.gpusched-explain table { border-collapse: collapse; margin: 8px 0; font-size: inherit; }
.gpusched-explain th, .gpusched-explain td {
  padding: 3px 7px; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }
.gpusched-explain td { overflow-wrap: anywhere; }
.gpusched-explain td.n { text-align: right; overflow-wrap: normal; }
.gpusched-explain td code { white-space: pre-wrap; }
.gpusched-explain code, .gpusched-explain pre { font-size: 12px; }
.gpusched-explain pre { padding: 8px; overflow-x: auto; background: #8881; }
.gpusched-explain summary { cursor: pointer; }
.gpusched-explain .remedy { font-weight: 600; }
"""

_HEAD = ("stage", "source", "tasks", "chunk", "kernels", "moved", "least", "time", "memory")


def html(found: Explanation) -> str:
    """Return an explanation as HTML.

    Parameters
    ----------
    found
        The explanation.
    """
    shown = [stage for stage in found.stages if shows(found, stage)]
    hidden = [stage for stage in found.stages if not shows(found, stage)]
    parts = [
        f"<style>{_STYLE}</style>",
        f"<p>{escape(summary(found))}</p>",
        *([] if found.fit is None else [f"<p>{escape(str(found.fit))}</p>"]),
        _table(_HEAD, [_row(stage) for stage in shown]),
        f"<p>{escape(moving(hidden))}</p>" if hidden else "",
        _breaks(found),
        f"<p>{escape(str(found.batches))}</p>" if found.batches.batches else "",
        *(f"<p>{escape(told)}</p>" for told in waits(found)),
        *(_stage(found, stage) for stage in shown),
        *(_kernel(kernel) for kernel in found.kernels),
        f"<p><small>{escape(profile(found))}</small></p>",
        f"<p><small>{escape(chunks(found))}</small></p>" if found.chunks else "",
    ]
    return f'<div class="gpusched-explain">{"".join(parts)}</div>'


def kernel_html(kernel: ExplainedKernel) -> str:
    """Return one kernel as HTML: where it comes from, and its source.

    Parameters
    ----------
    kernel
        The kernel.
    """
    inputs = ", ".join(f"{array.name}: {array.dtype}" for array in kernel.inputs)
    lines = "".join(
        f"<tr><td>{escape(str(place))}</td><td><code>{escape(place.text)}</code></td></tr>"
        for place in kernel.places
    )
    times = "once" if kernel.launches == 1 else f"{kernel.launches:,} times"
    parts = [
        f"<style>{_STYLE}</style>",
        f"<p><b>{escape(kernel.name)}</b>, launched {times}; inputs {escape(inputs)}</p>",
        f"<table><tbody>{lines}</tbody></table>" if lines else "",
        f"<pre>{escape(kernel.source)}</pre>",
    ]
    return f'<div class="gpusched-explain">{"".join(parts)}</div>'


def _table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(f"<tr>{''.join(cells)}</tr>" for cells in body)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def _row(stage: Stage) -> Iterator[str]:
    yield _cell(f"{stage.number} {stage.variable or stage.name}")
    place = stage.places[0] if stage.places else None
    told = f"{escape(str(place))}<br><code>{escape(place.text)}</code>" if place else ""
    yield f"<td>{told}</td>"
    yield _number(f"{stage.tasks_before:,} → {stage.tasks_after:,}")
    yield _cell(results(stage) or "not known")
    launches = sum(kernel.launches for kernel in stage.kernels)
    yield _number(f"{len(stage.kernels)}, {launches:,} times" if launches else "none")
    yield _number(("" if stage.bytes_exact else "≥ ") + bytes_(stage.bytes_moved))
    yield _number(bytes_(stage.bytes_least))
    yield _number(seconds(stage.seconds_total))
    yield _number(("" if stage.peak_exact else "≥ ") + bytes_(stage.peak))


def _cell(content: str) -> str:
    return f"<td>{escape(content)}</td>"


def _number(content: str) -> str:
    return f'<td class="n">{escape(content)}</td>'


def _breaks(found: Explanation) -> str:
    if not found.breaks:
        return ""
    body = [
        [
            _cell(each.operation),
            _cell(str(each.place or "")),
            _number(f"{each.tasks:,}"),
            _cell(each.reason),
            f'<td class="remedy">{escape(each.remedy)}</td>',
        ]
        for each in merged(found.breaks)
    ]
    head = ("graph break", "source", "tasks", "why", "what to change")
    return _table(head, body)


def _stage(found: Explanation, stage: Stage) -> str:
    body = [[_cell(label), _cell(content)] for label, content in rows(found, stage, details=True)]
    return _folded(f"Stage {stage.number}: {stage.variable or stage.name}", _table(("", ""), body))


def _kernel(kernel: ExplainedKernel) -> str:
    return _folded(f"Kernel {kernel.name}", f"<pre>{escape(kernel.source)}</pre>")


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
