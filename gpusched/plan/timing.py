"""Launches noted for profiles: by the CPU's clock, or by marks in the GPU's stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gpusched import events

if TYPE_CHECKING:
    from gpusched.plan.plan import Launch
    from gpusched.plan.tiles import TiledLaunches


class _Local(threading.local):
    def __init__(self) -> None:
        self.waiting: list[tuple[Launch, Any, Any]] = []


_local = _Local()


def call(launch: Launch, arguments: Sequence[Any]) -> int | None:
    """Call a kernel, note it, and return what it returns."""
    marks = launch.device.marks
    if marks is None:
        started = perf_counter()
        errors = launch.kernel.call(*arguments)
        _note(launch, started, perf_counter())
        return errors
    begin = marks.make()
    errors = launch.kernel.call(*arguments)
    _local.waiting.append((launch, begin, marks.make()))
    return errors


def timed(launch: Launch | TiledLaunches, compute: Callable[[], int]) -> int:
    """Call what calls kernels of the host several times, note it as one, and return its result."""
    started = perf_counter()
    errors = compute()
    _note(launch, started, perf_counter())
    return errors


def resolve() -> None:
    """Note this thread's launches on a device, which has just been waited for.

    Their lengths are by the device's clock. Their places on the CPU's follow from the last one's
    end, which is taken to be now.
    """
    waiting, _local.waiting = _local.waiting, []
    if not waiting:
        return
    now = perf_counter()
    last = waiting[-1][2]
    for launch, begin, end in waiting:
        marks = launch.device.marks
        assert marks is not None
        ended = now - marks.seconds(end, last)
        _note(launch, ended - marks.seconds(begin, end), ended)


def _note(launch: Launch | TiledLaunches, started: float, ended: float) -> None:
    nbytes = launch.bytes_read + launch.bytes_written
    events.record("kernel", launch.name, started, ended, nbytes,
                  (launch.device.name, launch.steps))  # fmt: skip
