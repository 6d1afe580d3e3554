"""A profile as text: where the time went, the kernels, who waited for whom, what is missing."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

from gpusched.inspection.units import bytes_, flow, seconds
from gpusched.profiling.kernel_table import KernelRow
from gpusched.quantities import count

if TYPE_CHECKING:
    from gpusched.profiling.report import Profile

NOT_COMPILED = "Kernels that were not compiled"
"""The title of their table."""
_KERNELS = 10
_LINES = 4
_TASKS = 5

TOLD = {
    "kernel": "kernels",
    "task": "in tasks, outside kernels",
    "unfused": "unfused, as kernels were not compiled",
    "compile": "compiling, loading, and waiting for that",
    "graph": "building graphs",
    "scheduling": "scheduling",
    "transfer": "transfers, both sides",
    "compression": "compressing and decompressing",
    "spill": "spilling",
    "unspill": "reading what was spilled",
    "wait": "waiting for thread policies",
}
"""What the kinds of spans are for people."""


def text(found: Profile) -> str:
    """Return a profile as text."""
    lines = [summary(found)]
    parts = (_spent, _kernels, _unfused, _outside, _contention, cluster)
    for rows in (part(found) for part in parts):
        told = list(rows)
        lines += ["", *told] if told else []
    for note in found.notes:
        lines += ["", *textwrap.wrap(f"Missing: {note}", 80, break_on_hyphens=False)]
    return "\n".join(lines)


def summary(found: Profile) -> str:
    """Return the first sentence."""
    tasks = sum(span.kind == "task" for span in found.timeline.spans)
    launches = sum(row.launches for row in found.kernels)
    return (
        f"{seconds(found.seconds)}: {count(tasks, 'task')} on "
        f"{count(found.threads, 'thread')}, {count(launches, 'launch', 'launches')} of "
        f"{count(len(found.kernels), 'kernel')}"
    )


def _spent(found: Profile) -> Iterator[str]:
    if not found.spent:
        return
    yield "Where the time went"
    order = sorted(found.spent.items(), key=lambda item: -item[1])
    for kind, spent in order:
        yield f"  {TOLD[kind]:<42} {seconds(spent):>8}"
    if found.threads:
        yield f"  {idle(found)}"


def idle(found: Profile) -> str:
    """Return a sentence on the threads that run tasks."""
    busy = sum(s.seconds for s in found.timeline.spans if s.kind == "task" and not s.depth)
    share = busy / (found.threads * found.seconds) if found.threads and found.seconds else 0.0
    return f"threads ran tasks {share:.0%} of the time"


def _kernels(found: Profile) -> Iterator[str]:
    if not found.kernels:
        return
    yield "Kernels"
    for row in found.kernels[:_KERNELS]:
        yield f"  {row.name}" + ("" if row.device == "cpu" else f" on {row.device}")
        yield (
            f"    {count(row.launches, 'launch', 'launches')}, {seconds(row.seconds)} in all, "
            f"{seconds(row.median_seconds)} each (median)"
        )
        yield f"    {bytes_(row.nbytes)}, {achieved(row)}"
        for place in row.places[:_LINES]:
            yield _cut(f"    {place}  {place.text}", 100)
        if len(row.places) > _LINES:
            yield f"    and {count(len(row.places) - _LINES, 'other line')}"
    if len(found.kernels) > _KERNELS:
        yield f"  and {count(len(found.kernels) - _KERNELS, 'other')}"


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 3]}..."


def _unfused(found: Profile) -> Iterator[str]:
    kernels = not_compiled(found)
    if not kernels:
        return
    yield f"{NOT_COMPILED}, by the time of the tasks that ran without them"
    for name, tasks, spent in kernels[:_TASKS]:
        yield f"  {name}"
        yield f"    {count(tasks, 'task')}, {seconds(spent)} in all"
    if len(kernels) > _TASKS:
        yield f"  and {count(len(kernels) - _TASKS, 'other')}"


def not_compiled(found: Profile) -> list[tuple[str, int, float]]:
    """Return the kernels that tasks ran without: the name, tasks and their seconds, most first."""
    spans: defaultdict[str, list[float]] = defaultdict(list)
    for span in found.timeline.spans:
        if span.kind == "unfused":
            spans[span.name].append(span.seconds)
    kernels = [(name, len(spent), sum(spent)) for name, spent in spans.items()]
    return sorted(kernels, key=lambda kernel: -kernel[2])


def _outside(found: Profile) -> Iterator[str]:
    if not found.outside_kernels:
        return
    yield "Tasks, outside kernels"
    tasks = list(found.outside_kernels.items())
    for name, spent in tasks[:_TASKS]:
        yield f"  {_cut(name, 41):<42} {seconds(spent):>8}"
    if len(tasks) > _TASKS:
        rest = sum(spent for _, spent in tasks[_TASKS:])
        others = f"and {count(len(tasks) - _TASKS, 'other')}"
        yield f"  {others:<42} {seconds(rest):>8}"


def achieved(row: KernelRow) -> str:
    """Return a kernel's bytes per second, against what the machine can do.

    Examples
    --------
    >>> from gpusched.profiling.kernel_table import KernelRow
    >>> from gpusched.profiling.text import achieved
    >>> achieved(KernelRow("add", "cpu", 1, 1.0, 1.0, 5_000_000_000, 5e9, 10e9, ()))
    '5 GB/s per launch, 50% of the 10 GB/s measured here'
    """
    told = f"{flow(row.rate)} per launch"
    if row.limit is None or row.share is None:
        return told
    return f"{told}, {row.share:.0%} of the {flow(row.limit)} measured here"


def _contention(found: Profile) -> Iterator[str]:
    if not found.contention:
        return
    yield "Waits for thread policies"
    for each in found.contention:
        yield (
            f"  {each.policy}: {count(each.waits, 'wait')}, {seconds(each.seconds)} in all, "
            f"{seconds(each.longest)} the longest"
        )
        if each.holders:
            yield f"    held by {each.holders[0]}"


def cluster(found: Profile) -> Iterator[str]:
    """Yield lines on what only a cluster has."""
    queued = found.timeline.queued
    if queued:
        yield (
            f"Tasks waited {seconds(median(queued))} for a thread of their worker (median), "
            f"{seconds(max(queued))} at most."
        )
    if found.distributed:
        told = (f"{name} {seconds(spent)}" for name, spent in found.distributed.items())
        yield from textwrap.wrap(
            "distributed counted: " + ", ".join(told), 80, break_on_hyphens=False
        )
    for at, what in found.changes:
        yield f"After {seconds(max(at, 0.0))}, {what}."
    worst = max((process.accuracy for process in found.timeline.processes), default=0.0)
    if worst:
        yield f"Clocks of other machines are known to {seconds(worst)}."
