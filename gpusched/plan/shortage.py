"""What is asked of a thread's kernels when memory is short, and what they then may return."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gpusched.dataclass import dataclass


class _Wanted(threading.local):
    count = 1


_wanted = _Wanted()


@dataclass(frozen=True)
class HostResult:
    """A task's result in host memory, because the device had no room for it."""

    array: np.ndarray


@contextmanager
def in_pieces(count: int) -> Iterator[None]:
    """Let the segments that this thread runs meanwhile work on so many parts of their chunks.

    Examples
    --------
    >>> from gpusched.plan.shortage import in_pieces, wanted
    >>> with in_pieces(8):
    ...     wanted()
    8
    """
    _wanted.count = count
    try:
        yield
    finally:
        _wanted.count = 1


def wanted() -> int:
    """Return the number of parts that the calling thread is to work in."""
    return _wanted.count
