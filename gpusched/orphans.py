"""Child processes that end when their parent does, however it ended."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
# Loaded here, since a process that has just been forked should not load anything.
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends; Linux only.

    Notes
    -----
    distributed's own watch over workers takes the interpreter's lock, which compiled code may not
    give back for long.
    """
    if _LIBRARY is not None:
        _LIBRARY.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number))
