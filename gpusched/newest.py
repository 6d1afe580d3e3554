"""A dictionary of so many entries at most: what this package keeps in memory without end is one."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_lock = threading.RLock()
"""Held for a few instructions wherever one of these is changed; its methods call each other."""


class Newest(OrderedDict[_Key, _Value]):
    """A dictionary that lets go of the entries that were set longest ago.

    Notes
    -----
    Thread-safe: looking up, setting, `pop`, `clear` and `now` are each done at once. To keep an
    entry for having been used, set it again.

    Examples
    --------
    >>> from gpusched.newest import Newest
    >>> found = Newest(2)
    >>> for key in "abac":
    ...     found[key] = key.upper()
    >>> dict(found)
    {'a': 'A', 'c': 'C'}
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: _Key, value: _Value) -> None:
        with _lock:
            super().__setitem__(key, value)
            self.move_to_end(key)
            while len(self) > self.limit:
                self.popitem(last=False)

    def now(self) -> list[tuple[_Key, _Value]]:
        """Return all entries as they are now, the oldest first."""
        with _lock:
            return list(self.items())

    def setdefault(self, key: _Key, default: Any = None) -> Any:
        """Return what is there, as new as before, or what is put there now."""
        with _lock:
            return super().setdefault(key, default)

    def pop(self, key: _Key, *default: Any) -> Any:
        """Remove an entry, and return its value or what is to be returned where there is none."""
        with _lock:
            return super().pop(key, *default)

    def clear(self) -> None:
        """Remove all entries."""
        with _lock:
            super().clear()


def _begin_again() -> None:
    global _lock
    # Another thread may have held it when this process was forked.
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_begin_again)
