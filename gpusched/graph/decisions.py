"""What a segment does with inputs of one kind, besides a plan, and what is left of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from gpusched.breaks import Reason
from gpusched.fusion.handles import Runnable


@dataclass(frozen=True)
class Direct:
    """The decision to call the functions as they are."""

    operation: str
    reason: Reason


@dataclass
class Remaining:
    """How much of a graph is still to come, as far as this process knows."""

    tasks: int = 0
    """Tasks of one program; threads that count at once may miss one."""


@dataclass(frozen=True)
class Waiting:
    """The decision to call the functions as they are until kernels are compiled: to record then."""

    kernels: tuple[Runnable, ...]
