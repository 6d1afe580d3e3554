"""Memory straight from the system: on huge pages where it has them, and given back when freed."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

HUGE = 2 << 20
"""Bytes of a huge page on x86-64 and on most others; the kernel fills one at its first access."""

# Shared memory, which is mmap's own default, would be one memory for a process and its forks.
_PRIVATE = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
)


def block(size: int) -> np.ndarray:
    """Return so many bytes of new memory; the system gets them back when nothing refers to them.

    Parameters
    ----------
    size
        Bytes, more than 0. Large blocks start on a huge page, and end on ordinary ones, so that no
        more memory is taken than asked for.

    Raises
    ------
    MemoryError
        If the system gives no more.

    Examples
    --------
    >>> from gpusched.backends.huge_pages import HUGE, block
    >>> found = block(3 * HUGE)
    >>> found.nbytes == 3 * HUGE, found.ctypes.data % HUGE
    (True, 0)
    """
    room = HUGE if size >= HUGE else 0
    try:
        mapping = mmap.mmap(-1, size + room, **_PRIVATE)
    except OSError as error:
        raise MemoryError(f"cannot allocate {size:,} bytes for a chunk: {error}") from error
    array = np.frombuffer(mapping, np.uint8)
    start = -array.__array_interface__["data"][0] % HUGE if room else 0
    if room and hasattr(mmap, "MADV_HUGEPAGE"):
        _advise(mapping, start, size // HUGE * HUGE)
    return array[start : start + size]


def _advise(mapping: mmap.mmap, start: int, length: int) -> None:
    # A kernel without huge pages says that it does not know them.
    with suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE, start, length)
