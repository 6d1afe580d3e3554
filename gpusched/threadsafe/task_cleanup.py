"""What a task leaves behind is given up when it ends, however it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpusched.threadsafe import registry
from gpusched.threadsafe.threads import current

logger = logging.getLogger(__name__)


@contextmanager
def running(key: Any) -> Iterator[None]:
    """Run one task of a worker: its key is in messages, and what it still holds is released.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> from gpusched.threadsafe.task_cleanup import running
    >>> with running("example"):
    ...     threadsafe.lock("example").acquire()
    >>> threadsafe.statistics()["lock(example)"].abandoned
    1
    """
    me = current()
    outer, me.task = me.task, key
    try:
        yield
    finally:
        me.task = outer
        if not outer:
            for guard in registry.named():
                if guard.give_up(me):
                    logger.warning("%s was still held when task %r ended; released", guard, key)
