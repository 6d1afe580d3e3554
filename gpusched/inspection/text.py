"""An explanation as text: a table for each stage that computes, and the places to look at."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpusched import config
from gpusched.breaks import GraphBreak
from gpusched.emit.kernel import EXACT
from gpusched.inspection.model import Break, Stage, StageTiles, StageUnjoined, Totals
from gpusched.inspection.units import bytes_, flow, seconds, shape
from gpusched.plan.tiers import OFF, UNFUSED
from gpusched.quantities import count

if TYPE_CHECKING:
    from gpusched.inspection.explanation import Explanation

_LABEL = 10
_LINES = 4
_STOPS = 8
_NAMES = 3
"""Functions whose time is not expected that the first sentence names."""


def text(found: Explanation, details: bool = False, width: int = 80) -> str:
    """Return an explanation as text.

    Parameters
    ----------
    found
        The explanation.
    details
        Whether stages that only move chunks, all lines, all graph breaks and the kernels' sources
        are shown too.
    width
        Columns.
    """
    lines = [*_wrapped("", summary(found), width)]
    if found.fit is not None:
        lines += ["", *_wrapped("", str(found.fit), width)]
    shown = [stage for stage in found.stages if details or shows(found, stage)]
    for stage in shown:
        lines += ["", *_stage(found, stage, details, width)]
    hidden = [stage for stage in found.stages if stage not in shown]
    if hidden:
        lines += ["", *_wrapped("", moving(hidden), width)]
    lines += list(_breaks(found.breaks, details, width))
    if found.batches.batches or details:
        lines += ["", *_wrapped("", str(found.batches), width)]
    if details and found.apart:
        lines += ["", "Not put together"]
        for each in found.apart:
            lines += _wrapped("  ", str(each), width)
    for told in waits(found):
        lines += ["", *_wrapped("", told, width)]
    if details:
        for kernel in found.kernels:
            lines += ["", f"Kernel {kernel.name}", "", kernel.source.rstrip()]
    lines += ["", *_wrapped("", profile(found), width)]
    if found.chunks:
        lines += ["", *_wrapped("", chunks(found), width)]
    return "\n".join(lines)


def shows(found: Explanation, stage: Stage) -> bool:
    """Return whether a stage is shown: it launches kernels, or moves a part of the bytes."""
    return bool(stage.kernels or stage.unknown or _computing(found, stage))


def _computing(found: Explanation, stage: Stage) -> list[str]:
    """Return what a stage calls unfused that does more than move chunks, if that is not little."""
    slight = stage.bytes_total * _SLIGHT < found.totals.bytes_moved
    return [] if slight else [name for name, _ in stage.calls if name not in _MOVING]


_SLIGHT = 100
"""Part of all bytes that a stage without kernels must move to be shown."""
_MOVING = frozenset(
    ["_getitem", "_trim", "finalize", "concatenate", "concatenate3", "concatenate_arrays",
     "concatenate_axes", "concatenate_shaped", "copy", "getitem", "getter", "getter_inline",
     "getter_nofancy", "one_of", "reshape", "stack", "transpose"]
)  # fmt: skip


def summary(found: Explanation) -> str:
    """Return the first sentences: tasks, kernels, bytes, time and memory."""
    totals = found.totals
    if not totals.fused_tasks:
        return (
            f"Nothing is fused{_why_not(found)}. {count(totals.tasks_before, 'task')} as built, "
            f"{totals.tasks_after:,} as run. A task needs {memory(totals)}."
        )
    compiled = all(kernel.compiled or kernel.waits for kernel in found.kernels)
    kernels = f"{len(found.kernels)} kernel{'s' * (len(found.kernels) != 1)}"
    return (
        f"{count(totals.tasks_before, 'task')} as built, {totals.tasks_after:,} as run; "
        f"{totals.fused_tasks:,} of them launch {kernels}, {count(totals.launches, 'time')} "
        f"in all. {bytes_(totals.bytes_moved)} read and written (least possible: "
        f"{bytes_(totals.bytes_least)}), about {seconds(totals.seconds)} on "
        f"{count(found.machine.threads, 'thread')}{'' if compiled else _when_compiled()}"
        f"{_not_counting(found)}. A task needs {memory(totals)}."
    )


def _why_not(found: Explanation) -> str:
    """Return why nothing is fused, as it ends a sentence."""
    if config.word("fusion.tier") == UNFUSED:
        return ", since gpusched.fusion.tier is unfused"
    reasons = "; ".join(dict.fromkeys(each.reason for each in found.breaks))
    return f": {reasons}" if reasons else ", since no task calls a function that gpusched knows"


def _when_compiled() -> str:
    if config.word("fusion.compile") == OFF:
        return " if all were compiled (gpusched.fusion.compile is off)"
    return " once all are compiled"


def _not_counting(found: Explanation) -> str:
    """Return what the expected time leaves out, as it ends a sentence; empty if nothing."""
    names = list(dict.fromkeys(each for s in found.stages for each in _computing(found, s)))
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f", not counting {', '.join(names[:_NAMES])}{more}" if names else ""


def memory(of: Stage | Totals) -> str:
    """Return what a task needs at most, and what it needs in plain dask."""
    ours = bytes_(of.peak) + (" of memory at most" if of.peak_exact else " of memory or more")
    more = "" if of.peak_unfused_exact else " or more"
    return f"{ours}; {bytes_(of.peak_unfused)}{more} in plain dask"


def moving(hidden: list[Stage]) -> str:
    """Return a sentence on the stages that only move chunks."""
    names = ", ".join(dict.fromkeys(stage.name for stage in hidden))
    tasks = sum(stage.tasks_after for stage in hidden)
    moved = sum(stage.bytes_total for stage in hidden)
    return (
        f"{count(len(hidden), 'more stage')} cut, join or copy chunks, or combine partial results "
        f"({names}): "
        f"{count(tasks, 'task')}, {bytes_(moved)} read and written."
    )


def waits(found: Explanation) -> Iterator[str]:
    """Yield a sentence on each thread policy that this process has waited for."""
    for each in found.waits:
        yield (
            f"Threads of this process have waited {seconds(each.seconds)} for {each.policy}, "
            f"{seconds(each.longest)} at a time at most: {count(each.waits, 'wait')} in "
            f"{count(each.calls, 'call')}."
        )


def profile(found: Explanation) -> str:
    """Return a sentence on where the expected times come from."""
    here = found.machine
    return (
        f"Times are expected from the profile of this machine's CPU of {here.date[:10]}: one "
        f"thread moves {flow(here.bandwidth_one)}, {count(here.threads, 'thread')} "
        f"{flow(here.bandwidth_all)}; a task costs {seconds(here.task_seconds)}, "
        f"launching a kernel {seconds(here.launch_seconds)}."
    )


def chunks(found: Explanation) -> str:
    """Return a sentence on the size of the chunks that were asked for by ``chunks="auto"``."""
    return f'chunks="auto" meant {found.chunks}.'


def _stage(found: Explanation, stage: Stage, details: bool, width: int) -> Iterator[str]:
    head = f"Stage {stage.number}  {stage.variable or stage.name}"
    if stage.variable:
        head += f" ({stage.name})"
    yield head[:width]
    for label, content in rows(found, stage, details):
        yield from _wrapped(f"  {label:<{_LABEL}}", content, width)


def rows(found: Explanation, stage: Stage, details: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the lines of a stage's table: a label, and what there is to say."""
    kinds = f", {stage.kinds} kinds" if stage.kinds > 1 else ""
    yield "tasks", f"{stage.tasks_before:,} as built, {stage.tasks_after:,} as run{kinds}"
    if stage.results:
        chunk = results(stage)
        yield "chunk", chunk + (f" from {_inputs(stage)}" if stage.inputs else "")
    shown = stage.places if details else stage.places[:_LINES]
    for k, place in enumerate(shown):
        yield "source" if k == 0 else "", f"{place}  {place.text}"
    if len(shown) < len(stage.places):
        yield "", f"and {count(len(stage.places) - len(shown), 'other line')}"
    for kernel in stage.kernels:
        known = next(each for each in found.kernels if each.name == kernel.name)
        work = known.work
        heavy = f", {work.heavy:g} of them heavy" if work.heavy else ""
        mode = known.kernel.mathematics
        yield "kernel", kernel.name
        if known.edited:
            yield "", f"your version of {known.edited}"
        for told in known.tuned:
            yield "", f"tuned: {told}"
        if not known.compiled:
            yield "", known.when_compiled
        if mode != EXACT:
            yield "", f"{mode} mathematics"
        yield (
            "",
            (
                f"{count(kernel.launches, 'launch', 'launches')}, "
                f"{count(int(work.operations), 'operation')} per element{heavy}"
            ),
        )
    for tiles in stage.tiles:
        yield "together", _together(tiles)
    for unjoined in stage.unjoined:
        yield "unjoined", _unjoined(unjoined)
    if stage.calls:
        yield "unfused", ", ".join(f"{name} ({times:,})" for name, times in stage.calls)
    yield from _devices(stage) if found.gpu else ()
    yield from _costs(stage, bool(_computing(found, stage)))
    if details:
        for use in stage.boundaries:
            yield (
                "uses",
                f"{use.chunks:.3g} chunks per task of stage {use.stage}: {use.reason}",
            )
    if stage.unknown:
        yield "not known", stage.unknown


def _together(tiles: StageTiles) -> str:
    *others, last = dict.fromkeys(tiles.kernels)
    names = f"{', '.join(others)} and {last}" if others else last
    return (
        f"{names}: all on {tiles.rows:,} rows of {tiles.of_rows:,}, then on the next ones; "
        f"{bytes_(tiles.bytes_cached)} of what they read is in the cache by then"
    )


def _unjoined(unjoined: StageUnjoined) -> str:
    return (
        f"{unjoined.kernel}: reads {unjoined.arrays:,} arrays without concatenating them, in "
        f"{unjoined.calls:,} calls; {bytes_(unjoined.bytes_copied)} at their borders are copied; "
        "the first task of its kind concatenates them"
    )


def _devices(stage: Stage) -> Iterator[tuple[str, str]]:
    """Yield where the calls of a stage run, on workers that own a GPU."""
    for each in stage.devices:
        tasks, copied = count(each.tasks, "task"), each.bytes_to_device or each.bytes_to_host
        if copied:
            tasks += f"; {bytes_(copied)} copied {'there' if each.on_device else 'from the GPU'}"
        if each.on_device:
            yield "GPU", f"{each.calls}: {tasks}"
        else:
            yield "host", f"{each.calls}: {each.reason} ({tasks})"


def results(stage: Stage) -> str:
    """Return the shape and dtype of a stage's chunk, or of the arrays that it consists of."""
    found = Counter(f"{shape(each.shape)} {each.dtype}" for each in stage.results)
    return ", ".join(f"{n} of {kind}" if n > 1 else kind for kind, n in found.items())


def _costs(stage: Stage, more: bool) -> Iterator[tuple[str, str]]:
    least = "" if stage.bytes_exact else "at least "
    yield (
        "bytes",
        (
            f"{least}{bytes_(stage.bytes_read)} read, {bytes_(stage.bytes_written)} written per "
            f"task; least possible {bytes_(stage.bytes_least_read)}, "
            f"{bytes_(stage.bytes_least_written)}"
        ),
    )
    if stage.intensity is not None:
        yield "intensity", f"{stage.intensity:.3g} operations per byte"
    without = ", not counting what is unfused" if more else ""
    times = f"{seconds(stage.seconds)} per task, {seconds(stage.seconds_total)} in all"
    yield "time", times + without
    yield "memory", memory(stage).replace(" of memory", "")


def _inputs(stage: Stage) -> str:
    names = dict.fromkeys(str(each) for each in stage.inputs)
    shown = list(names)[:3]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _breaks(breaks: tuple[Break, ...], details: bool, width: int) -> Iterator[str]:
    places = merged(breaks)
    shown = places if details else [p for p in places if GraphBreak[p.code].advises][:_STOPS]
    if shown:
        yield ""
        yield "Graph breaks"
    for each in shown:
        where = f" at {each.place}" if each.place else ""
        head = f"{each.operation}{where}, stage {each.stage}, {count(each.tasks, 'task')}"
        yield from _wrapped("  ", head, width)
        yield from _wrapped(f"    {'why':<{_LABEL - 2}}", each.reason, width)
        yield from _wrapped(f"    {'change':<{_LABEL - 2}}", each.remedy, width)
    hidden = [place for place in places if place not in shown]
    if hidden:
        reasons = "; ".join(dict.fromkeys(each.reason for each in hidden))
        told = f"{count(len(hidden), 'more graph break')}, text(details=True): {reasons}."
        yield ""
        yield from _wrapped("", told, width)


def merged(breaks: tuple[Break, ...]) -> list[Break]:
    """Return breaks with those of one line, operation and reason as one, in its first stage."""
    found: dict[Any, Break] = {}
    for each in breaks:
        key = each.operation, each.reason, each.place
        so_far = found.get(key)
        found[key] = replace(so_far, tasks=so_far.tasks + each.tasks) if so_far else each
    return list(found.values())


def _wrapped(label: str, content: str, width: int) -> list[str]:
    return textwrap.wrap(
        content,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
