"""An explanation as HTML, for Jupyter: one table of stages, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
from gpusched.rendering.html import (
    Number,
    code,
    folded,
    fragment,
    joined,
    listing,
    paragraph,
    source,
    strong,
    table,
)

if TYPE_CHECKING:
    from gpusched.inspection.explanation import Explanation
    from gpusched.inspection.kernel_listings import ExplainedKernel

_HEAD = ("stage", "source", Number("tasks"), "chunk",
         *map(Number, ("kernels", "moved", "least", "time", "memory")))  # fmt: skip


def html(found: Explanation) -> str:
    """Return an explanation as HTML."""
    shown = [stage for stage in found.stages if shows(found, stage)]
    hidden = [stage for stage in found.stages if not shows(found, stage)]
    return fragment(
        paragraph(summary(found)),
        *([] if found.fit is None else [paragraph(str(found.fit))]),
        table(_HEAD, map(_row, shown)),
        paragraph(moving(hidden)) if hidden else "",
        _breaks(found),
        paragraph(str(found.batches)) if found.batches.batches else "",
        *map(paragraph, waits(found)),
        *(_stage(found, stage) for stage in shown),
        _apart(found),
        *(folded(f"Kernel {kernel.name}", listing(kernel.source)) for kernel in found.kernels),
        paragraph(profile(found), "soft"),
        paragraph(chunks(found), "soft") if found.chunks else "",
    )


def kernel_html(kernel: ExplainedKernel) -> str:
    """Return one kernel as HTML: where it comes from, and its source."""
    inputs = ", ".join(f"{array.name}: {array.dtype}" for array in kernel.inputs)
    times = "once" if kernel.launches == 1 else f"{kernel.launches:,} times"
    return fragment(
        paragraph(joined(strong(kernel.name), f", launched {times}; inputs {inputs}")),
        table((), ((str(place), code(place.text)) for place in kernel.places)),
        listing(kernel.source),
    )


def _row(stage: Stage) -> Iterator[str]:
    yield f"{stage.number} {stage.variable or stage.name}"
    yield source(stage.places[0] if stage.places else None)
    yield Number(f"{stage.tasks_before:,} → {stage.tasks_after:,}")
    yield results(stage) or "not known"
    launches = sum(kernel.launches for kernel in stage.kernels)
    yield Number(f"{len(stage.kernels)}, {launches:,} times" if launches else "none")
    yield Number(("" if stage.bytes_exact else "≥ ") + bytes_(stage.bytes_moved))
    yield Number(bytes_(stage.bytes_least))
    yield Number(seconds(stage.seconds_total))
    yield Number(("" if stage.peak_exact else "≥ ") + bytes_(stage.peak))


def _breaks(found: Explanation) -> str:
    if not found.breaks:
        return ""
    body = [
        (each.operation, str(each.place or ""), Number(f"{each.tasks:,}"), each.reason,
         strong(each.remedy))
        for each in merged(found.breaks)
    ]  # fmt: skip
    return table(("graph break", "source", "tasks", "why", "what to change"), body)


def _apart(found: Explanation) -> str:
    if not found.apart:
        return ""
    body = [(each.what, each.reason, Number(f"{each.times:,}"), strong(each.remedy))
            for each in found.apart]  # fmt: skip
    return folded("Not put together", table(("what", "why", "times", "what to change"), body))


def _stage(found: Explanation, stage: Stage) -> str:
    details = table((), rows(found, stage, details=True))
    return folded(f"Stage {stage.number}: {stage.variable or stage.name}", details)
