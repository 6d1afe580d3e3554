"""Locks that are free in a forked process: the threads that held them are not in it."""

from __future__ import annotations

import os
import threading
import weakref

_all: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def lock() -> threading.Lock:
    """Return a new lock.

    What is changed under it has to hold in the middle of a change, too, as a fork may find it
    there: a dictionary with an entry more or less, and no two variables that have to agree.

    Examples
    --------
    >>> from gpusched import forks
    >>> with forks.lock() as taken:
    ...     taken
    True
    """
    made = threading.Lock()
    _all.add(made)
    return made


def _begin_again() -> None:
    for each in list(_all):
        if each.locked():
            each.release()


os.register_at_fork(after_in_child=_begin_again)
