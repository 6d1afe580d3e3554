"""The closing lines of a run: what was fused, what it moved, and graph breaks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dask.utils import format_bytes

from gpusched import config
from gpusched.breaks import GraphBreak
from gpusched.store.statistics import Committed, Statistics

_BREAKS_SHOWN = 8


def summary(
    counted: Statistics,
    seconds: float,
    fused: bool = True,
    missing: Sequence[str] = (),
    compiling: Collection[str] = (),
    code: int = 0,
) -> str:
    """Return the closing lines of a run.

    Parameters
    ----------
    counted
        What all processes counted during the run.
    seconds
        How long the run took.
    fused
        Whether fusion was on.
    missing
        What is not in ``counted``, and why, in words.
    compiling
        Kernels that this machine's compile service has still to make.
    code
        The script's exit code.

    Examples
    --------
    >>> from gpusched.cli.summary import summary
    >>> from gpusched.store.statistics import Statistics
    >>> print(summary(Statistics(), 1.5, fused=False))
    gpusched: 1.50 s
      fusion    off
    """
    lines = [("fusion", "off")] if not fused else []
    if fused and (counted.tasks or not missing):
        lines += _lines(counted, compiling) if counted.tasks else [("tasks", _none(code))]
    lines += _memory(counted)
    lines += [("missing", text) for text in missing]
    return "\n".join(
        [f"gpusched: {seconds:.2f} s", *(f"  {label:<9} {text}" for label, text in lines)]
    )


def _none(code: int) -> str:
    if code:
        # Tasks are counted as they end, so that nothing is known of those that failed.
        return f"none with array functions had ended when the script failed (exit code {code})"
    if config.word("fusion.tier") == "unfused":
        return "none is fused, since gpusched.fusion.tier is unfused"
    return "none held a function that gpusched knows, so nothing was fused"


def _lines(counted: Statistics, compiling: Collection[str]) -> Sequence[tuple[str, str]]:
    lines = [
        ("tasks", f"{counted.tasks:,} with array functions, {counted.fused_tasks:,} of them fused"),
        ("kernels", f"{len(counted.kernels):,}, launched {_times(counted.launches)}"),
        (
            "data",
            f"{format_bytes(counted.bytes_read)} read and "
            f"{format_bytes(counted.bytes_written)} written by kernels",
        ),
    ]
    lines += [*_tiers(counted, compiling), *_device(counted)]
    if counted.edited_launches:
        lines.append(
            ("edited", f"your versions of kernels, launched {_times(counted.edited_launches)}")
        )
    if counted.compilations:
        unused = len(counted.unused_compilations)
        late = f", {_some(unused)} not launched any more" if unused else ""
        lines.append(("compiled", f"{_times(counted.compilations)}, {_compiling(counted)}{late}"))
    return [*lines, *_breaks(counted)]


def _compiling(counted: Statistics) -> str:
    if config.get("fusion.compile") == "wait":
        return f"{counted.compile_seconds:.2f} s, which tasks waited for"
    seconds = counted.compilation_microseconds.total() * 1e-6
    return f"{seconds:.2f} s of processor time in the background"


def _tiers(counted: Statistics, compiling: Collection[str]) -> Sequence[tuple[str, str]]:
    """Return what ran without its kernels, and what the next run takes for it."""
    if not counted.unfused_tasks:
        return []
    unfused, computing = counted.unfused_seconds, counted.unfused_seconds + counted.kernel_seconds
    tasks = f"{_of(counted.unfused_tasks, counted.tasks)} ran unfused, as kernels were not compiled"
    lines = [("waiting", f"{tasks}: {unfused:.2f} s of the {computing:.2f} s on chunks")]
    missing = counted.unfused_microseconds
    there = missing.keys() & (counted.kernels_requested.keys() | counted.kernels.keys())
    seconds = sum(missing[name] for name in there) * 1e-6
    if there:
        told = f"will find {_of_kernels(len(there), len(missing))}, for {seconds:.2f} s of these"
        if left := len(there.intersection(compiling)):
            those = "one of them" if left == 1 else f"{left:,} of them"
            told += f"; the compile service is still making {those}"
    elif config.get("fusion.compile") == "off":
        told = "takes as long: gpusched.fusion.compile is off"
    else:
        told = f"takes as long: too little so far to compile {_some(len(missing))} for; runs add up"
    return [*lines, *_estimate(counted), ("next run", told)]


def _estimate(counted: Statistics) -> Sequence[tuple[str, str]]:
    """Return what the chunks would have taken unfused, as far as this run has measured that.

    A launch of a kernel counts as long as the calls took on average that ran without it. Nothing
    is known of kernels that no task did without.
    """
    took, measured = counted.unfused_microseconds, counted.unfused_launches
    launched = counted.kernels.keys() & measured.keys()
    if not launched:
        return []
    more = sum(counted.kernels[name] * took[name] / measured[name] for name in launched)
    told = f"{counted.unfused_seconds + more * 1e-6:.2f} s if all had run unfused, as long as these"
    if others := len(counted.kernels) - len(launched):
        told += f"; not counting {_some(others)}, there from the beginning"
    return [("estimate", told)]


def _device(counted: Statistics) -> Sequence[tuple[str, str]]:
    """Return where workers with a GPU have computed the chunks of a NumPy program."""
    tasks = counted.device_tasks + counted.host_tasks
    if not tasks:
        return []
    copied = (
        f"{format_bytes(counted.bytes_to_device)} copied to GPUs and "
        f"{format_bytes(counted.bytes_to_host)} back"
    )
    lines = [("device", f"{_of(counted.device_tasks, tasks)} ran on GPUs, {copied}")]
    between, through = counted.bytes_between_devices, counted.bytes_through_host
    if between or through:
        sent = f"{format_bytes(between)} from GPU to GPU, {format_bytes(through)} through the host"
        lines.append(("sent", sent))
    return lines + [
        ("on host", f"{operation}: {reason} ({_times(count)})")
        for (operation, reason), count in counted.host_reasons.most_common(_BREAKS_SHOWN)
    ]


def _memory(counted: Statistics) -> Sequence[tuple[str, str]]:
    """Return what had no room, and what was done about it."""
    written, read = format_bytes(counted.spilled_bytes), format_bytes(counted.unspilled_bytes)
    told = [
        (counted.spilled_bytes, f"{written} of results spilled to disk, {read} read back"),
        (counted.memory_waits, f"{_tasks(counted.memory_waits)} waited for room, "
                               f"{counted.memory_wait_seconds:.2f} s together"),
        (counted.memory_pieces, f"{_tasks(counted.memory_pieces)} run on parts of their chunks"),
        (counted.memory_refusals, f"{_tasks(counted.memory_refusals)} refused"),
    ]  # fmt: skip
    said = "; ".join(text for happened, text in told if happened)
    if not said:
        return []
    lines = [("memory", said)]
    reasons = [f"{what} ({_times(n)})" for what, n in counted.memory_reasons.most_common()]
    if reasons:
        lines.append(("", f"waited for: {', '.join(reasons)}"))
    if counted.memory_fullest:
        lines.append(("", _fullest(counted.memory_fullest)))
    return lines


def _fullest(most: Committed) -> str:
    """Return what the worker took that had least left."""
    sizes = {"held": most.held, "received": most.in_flight, "reserved": most.reserved,
             "unmanaged": most.unmanaged}  # fmt: skip
    parts = ", ".join(f"{format_bytes(n)} {name}" for name, n in sizes.items() if n)
    of = f"{format_bytes(most.total)} of the {format_bytes(most.limit)} for tasks"
    return f"a worker took at most {of}: {parts}"


def _tasks(number: int) -> str:
    return "one task" if number == 1 else f"{number:,} tasks"


def _some(kernels: int) -> str:
    return "one kernel" if kernels == 1 else f"{kernels:,} kernels"


def _of_kernels(some: int, kernels: int) -> str:
    if some < kernels:
        return f"{some:,} of {kernels:,} kernels compiled"
    return f"{'the kernel' if kernels == 1 else f'all {kernels:,} kernels'} compiled"


def _of(some: int, tasks: int) -> str:
    return f"all {tasks:,} tasks" if some == tasks else f"{some:,} of {tasks:,} tasks"


def _breaks(counted: Statistics) -> Sequence[tuple[str, str]]:
    shown = [
        ("unfused", f"{operation}: {reason} ({_times(count)})")
        for (operation, reason), count in counted.breaks.most_common(_BREAKS_SHOWN)
    ]
    shown += [("", f"and {told}") for told in _others(len(counted.breaks) - len(shown))]
    return [*shown, *_apart(counted)]


def _others(count: int) -> list[str]:
    """Return what is said of that many reasons which are not shown."""
    return ["another reason" if count == 1 else f"{count} other reasons"] if count > 0 else []


def _apart(counted: Statistics) -> Sequence[tuple[str, str]]:
    """Return how often things stayed as dask has them that could have gained; see `explain`."""
    found = [n for (_, why), n in counted.apart.items() if why.kind is not GraphBreak.NO_GAIN]
    if not found:
        return []
    times = _times(sum(found))
    return [("apart", f"{times}, tasks or kernels were not put together, and ran as they are; "
                      "gpusched explain --details SCRIPT says why")]  # fmt: skip


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
