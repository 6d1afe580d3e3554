"""Python's collector of garbage in cycles, which has nothing to find in what stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause it while much is made that stays: it would go through all of that again and again.

    Graphs have no cycles, and looking for some takes a third to half of the time; of importing what
    fusion needs, a fifth.

    Examples
    --------
    >>> import gc
    >>> from gpusched.graph.collector import collector_paused
    >>> with collector_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
