"""Child processes that end when their parent does, and not before."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading

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


def ignore_interrupts() -> None:
    """Have this process ignore Ctrl-C, which is for the one that started it.

    Terminals send it to a whole group of processes, and Jupyter does so to interrupt a cell.
    Nothing changes where the caller is not the main thread.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
