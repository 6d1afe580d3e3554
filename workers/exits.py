"""Why worker processes end: the codes they leave with, and what to make of the others."""

from __future__ import annotations

import signal

LOST_CONTEXT = 86
"""Exit code of a worker whose device cannot compute any more."""

EVENTS = "gpusched-exit"
"""The topic of the scheduler's events under which workers and nannies report why one ended."""


def describe(exitcode: int) -> str:
    """Return in words how a process ended.

    Parameters
    ----------
    exitcode
        As of `multiprocessing.Process`: negative for a signal.

    Examples
    --------
    >>> from gpusched.workers.exits import describe
    >>> describe(-15)
    'was ended by SIGTERM'
    >>> describe(3)
    'left with exit code 3'
    """
    if exitcode == LOST_CONTEXT:
        return f"left with exit code {LOST_CONTEXT}: its device could not compute any more"
    if exitcode >= 0:
        return f"left with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    advice = {
        "SIGKILL": ": often the system's out-of-memory killer; see dmesg, or lower --memory-limit",
        "SIGSEGV": ": a crash in compiled code; PYTHONFAULTHANDLER=1 shows where",
        "SIGBUS": ": a crash in compiled code, or a full /dev/shm",
    }
    return f"was ended by {name}{advice.get(name, '')}"
