"""Clocks of other processes, on this one's.

Processes of one running system share a clock exactly. For others, each answer to "what time is it"
was read between the question and the answer; what all questions together leave open is the
accuracy.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Reading:
    """A process's clock, and which clock that is."""

    time: float
    """Seconds of its `time.perf_counter`."""
    clock: str
    """Equal for processes that share a clock; empty where that cannot be determined."""


@dataclass(frozen=True)
class Exchange:
    """A reading, and when this process asked for it and had it."""

    reading: Reading
    asked: float
    """Seconds of this process's `time.perf_counter`."""
    answered: float


@dataclass(frozen=True)
class Offset:
    """What to take from a process's clock to have this one's."""

    seconds: float
    accuracy: float
    """Seconds by which it may be wrong, either way; 0 for the same clock."""


def read() -> Reading:
    """Return this process's clock."""
    return Reading(perf_counter(), _clock())


def _clock() -> str:
    # Linux counts perf_counter from its start, for all processes but those in a time namespace.
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return ""


def offset(exchanges: Iterable[Exchange]) -> Offset:
    """Return the offset that some exchanges with one process leave.

    Raises `ValueError` if there is no exchange.

    Examples
    --------
    >>> from gpusched.profiling.clocks import Exchange, Reading, offset
    >>> offset([Exchange(Reading(105.0, ""), 4.0, 7.0), Exchange(Reading(111.0, ""), 10.0, 14.0)])
    Offset(seconds=99.5, accuracy=1.5)
    """
    found = list(exchanges)
    if not found:
        raise ValueError("a clock that was never read cannot be compared")
    if found[0].reading.clock and found[0].reading.clock == _clock():
        return Offset(0.0, 0.0)
    # The offset lies in all of these intervals, unless the clocks drift: then the shortest says
    # the most.
    low = max(each.reading.time - each.answered for each in found)
    high = min(each.reading.time - each.asked for each in found)
    if low > high:
        best = min(found, key=lambda each: each.answered - each.asked)
        low, high = best.reading.time - best.answered, best.reading.time - best.asked
    return Offset((low + high) / 2, (high - low) / 2)
