"""What a process reports of what it recorded."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any

from gpusched.profiling.clocks import Offset


@dataclass(frozen=True)
class Limit:
    """The bytes per second that a device can move, as measured."""

    one: float
    """One launch by itself; one thread's on a CPU."""
    all: float
    """All launches that go on at once."""


@dataclass
class Report:
    """What one process recorded."""

    process: tuple[str, int]
    """Host's name and process id."""
    names: list[str]
    """Of the workers in it, or ``scheduler``."""
    events: list[tuple[Any, ...]] = field(default_factory=list)
    dropped: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    """Seconds that distributed counted by activity, such as ``"gather-dep deserialize"``."""
    joined: float = 0.0
    """When recording began here, in seconds of this process's clock."""


def process() -> tuple[str, int]:
    """Return this process's identity."""
    return socket.gethostname(), os.getpid()


@dataclass
class Gathered:
    """What a cluster recorded."""

    reports: list[tuple[Report, Offset]] = field(default_factory=list)
    """One per process."""
    changes: list[tuple[float, str]] = field(default_factory=list)
    """Workers that joined or left: seconds of this process's clock, and what happened."""
    notes: list[str] = field(default_factory=list)
    """What is missing, and why."""
    limits: dict[str, Limit] = field(default_factory=dict)
    """Of CPUs, by host; without this one's."""
    gpu_limits: dict[str, Limit] = field(default_factory=dict)


def plugin_name(token: str) -> str:
    """Return the name that distributed knows a profile's plugins by."""
    return f"gpusched-profile-{token}"
