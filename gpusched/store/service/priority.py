"""How much of a busy machine compilation gets: processes that give way to tasks from their start.

A Python process that imports a compiler has a second of work before it could lower its own
priority, beside the first chunks of whoever has asked; so whoever starts it does that.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

BESIDE, IDLE = 5, 19
"""How nice processes are: beside tasks on all of two cores, 5 leaves a third of one core to a
kernel that is worth it, 10 a tenth, so that it comes when the tasks are over, and 19 next to
nothing."""

PAUSE = 0.15
"""Seconds between two tries: Linux takes one change of a session's priority in a tenth of one."""
TRIES = 10


def lower(pid: int, nice: int) -> bool:
    """Lower the priority of a process and of its session, which it is the first of.

    Parameters
    ----------
    pid
        Of a process that this one has started in a session of its own.
    nice
        One of `BESIDE` and `IDLE`. A process that is as nice already is left so.

    Returns
    -------
    bool
        Whether all is done that can be; if not, it is to be tried again after `PAUSE`.
    """
    with contextlib.suppress(OSError):  # It has ended.
        if os.getpriority(os.PRIO_PROCESS, pid) < nice:
            os.setpriority(os.PRIO_PROCESS, pid, nice)
    # Where Linux groups processes by session, their own niceness counts within the group only.
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    except BlockingIOError:
        return False
    except OSError:
        return True  # It has ended, or there are no such groups here.
    return True


def lower_patiently(pid: int, nice: int) -> None:
    """Do what `lower` does, as often as it takes."""
    for _ in range(TRIES):
        if lower(pid, nice):
            break
        time.sleep(PAUSE)
