"""How much of a busy machine compilation gets: workers that give way to tasks.

What tasks wait for is not put off, nor what is worth more than its compilation costs them: to do
that later costs as much, and all that is computed until then. On two cores, beside tasks on both,
ten calls of `pairwise` took 5.7 s when two kernels got the core that a process gets, 6.9 s at a
niceness of 2 and 11 s at 5, since the kernels came after two calls, three, and seven.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

AFTER, IDLE = 5, 19
"""How nice workers are: 5 for the next run of what has ended, which leaves a third of one core to
them beside tasks on all of two cores, and 19, which leaves next to nothing."""

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
        One of `AFTER` and `IDLE`. A process that is as nice already is left so.

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
