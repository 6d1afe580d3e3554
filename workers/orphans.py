"""Worker processes end when their nanny's process does, however it ended."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def end_with_parent() -> None:
    """Have the kernel end this process when the thread that started it ends; Linux only.

    distributed's own watch takes the interpreter's lock, which compiled code may not give back
    for long. The thread that starts a worker's process waits for it, so it lives as long.

    Examples
    --------
    >>> from gpusched.workers.orphans import end_with_parent
    >>> end_with_parent()  # doctest: +SKIP
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
