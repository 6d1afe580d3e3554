"""What a segment does with inputs of one kind, besides a plan, and what is left of a graph."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from gpusched.breaks import Reason
from gpusched.dataclass import dataclass
from gpusched.store.handles import Runnable


@dataclass(frozen=True)
class Direct:
    """The decision to call the functions as they are."""

    operation: str
    reason: Reason


@dataclass
class Remaining:
    """How much of a graph is still to come, as far as this process knows.

    It goes with the messages that a program goes with, and each process counts for itself what it
    has run: several workers take what the others have run for something to come. What is decided
    by it is decided by a graph's first tasks.
    """

    tasks: int = 0
    """Tasks of one program; threads that count at once may miss one."""
    graph: str = ""
    """The graph that was made last; empty if none is known of."""
    extra: int | None = None
    """Bytes that each of the tasks takes at most besides its inputs, its result included, where
    its calls are made one by one; None if that is not known."""
    whole: bool = True
    """Whether the sizes of all their results are known; those that are not count nothing there."""

    def learn(self, told: Remaining) -> None:
        """Take what another process has sent; nothing happens if the graph is known already."""
        if told.graph and told.graph != self.graph:
            self.tasks, self.graph = told.tasks, told.graph
            self.extra, self.whole = told.extra, told.whole

    def told(self) -> tuple[Any, ...]:
        """Return what makes it again, as few bytes when pickled."""
        known = () if self.extra is None else (self.extra, False)[: 2 - self.whole]
        return (self.tasks, self.graph, *known) if self.graph else ()

    def __reduce__(self) -> Any:
        return Remaining, self.told()


UNKNOWN = Remaining()
"""What is known where nothing was sent."""


@dataclass(frozen=True)
class Waiting:
    """The decision to call the functions as they are until kernels are compiled: to record then."""

    kernels: tuple[Runnable, ...]


class GpuFallbackWarning(UserWarning):
    """Kernels for chunks on a GPU cannot be made: CuPy's own calls compute them."""


_has_warned = threading.Event()


def warn_once(reason: str, library: str = "CuPy") -> None:
    """Warn of the first such failure of this process; statistics count each of them.

    Results are right without kernels, so that only a measurement would show that there are none.

    Parameters
    ----------
    reason
        What has failed.
    library
        Whose own calls compute instead.
    """
    if _has_warned.is_set():
        return
    _has_warned.set()
    warnings.warn(
        f"chunks on the GPU are computed by {library}'s own calls, unfused: {reason}. Other such "
        "failures of this process are counted in gpusched.statistics().breaks only; "
        "'gpusched doctor' tests each GPU",
        GpuFallbackWarning,
        stacklevel=2,
    )
