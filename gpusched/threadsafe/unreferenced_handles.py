"""Handles that nobody refers to through a proxy any more, to be deleted under their policy."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

_MOST = 256
"""Handles with other references that are kept at most."""
_LONGEST = 5.0
"""Seconds after which they are let go with the next handle."""
_WHOLE = 2
"""The generation of a collection of everything."""


class Unreferenced:
    """Handles to be deleted.

    A handle that something else refers to may be in a cycle, as netCDF4's datasets and variables
    are. The garbage collector would delete it at any moment and in any thread; so it is kept, and
    let go where the policy holds, together with many, for a collection takes long.

    Notes
    -----
    Thread-safe; only the thread that the policy lets in calls `delete`.

    Examples
    --------
    >>> from gpusched.threadsafe.unreferenced_handles import Unreferenced
    >>> gone = Unreferenced()
    >>> gone.append([open("/dev/null")])
    >>> gone.delete()
    >>> bool(gone)
    False
    """

    def __init__(self) -> None:
        self._found: deque[list[Any]] = deque()
        self._kept: dict[int, Any] = {}
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self._found)

    def append(self, only: list[Any]) -> None:
        """Add the handle in a list, which is emptied; safe at any moment, in any thread.

        The caller has no other reference to it: one that is still there while the handle's cycle
        is let go would keep it for another thread to collect.
        """
        self._found.append(only)

    def forget(self) -> None:
        """Let all go, whoever is inside."""
        self._found.clear()

    def delete(self) -> None:
        """Delete them, under the policy."""
        # A collection may begin at any line here, and have this thread let more go in between.
        kept = self._kept
        while self._found:
            with suppress(IndexError):
                handle = self._found.popleft().pop()
                if not kept:
                    self._since = time.monotonic()
                kept[id(handle)] = handle
                del handle
        for key in list(kept):
            # Referred to by the dictionary and by the argument, and by nothing else.
            if sys.getrefcount(kept.get(key)) == 2:
                kept.pop(key, None)
        if len(kept) >= _MOST or (kept and time.monotonic() > self._since + _LONGEST):
            self._collect()

    def _collect(self) -> None:
        """Let all that are kept go, and delete those in cycles in this thread."""
        me = threading.get_ident()

        def let_go(phase: str, info: dict[str, int]) -> None:
            # Once a collection has begun, no other thread's allocations begin one.
            if phase == "start" and info["generation"] == _WHOLE and threading.get_ident() == me:
                self._kept.clear()

        gc.callbacks.append(let_go)
        try:
            # Does nothing, and so lets nothing go, while another thread's collection runs.
            gc.collect()
        finally:
            gc.callbacks.remove(let_go)
