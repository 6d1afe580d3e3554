"""Handles that nobody refers to through a proxy any more, to be deleted under their policy."""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from typing import Any

_MOST = 256
"""Handles with other references that are kept at most."""
_LONGEST = 5.0
"""Seconds after which they are let go with the next handle."""


class Gone:
    """Handles to be deleted.

    A handle that something else refers to may be in a cycle, as netCDF4's datasets and variables
    are. The garbage collector would delete it at any moment and in any thread; so it is kept, and
    let go where the policy holds, together with many, for a collection takes long.

    Notes
    -----
    Thread-safe; only the thread that the policy lets in calls `delete`.

    Examples
    --------
    >>> from gpusched.threadsafe.gone import Gone
    >>> gone = Gone()
    >>> gone.append(open("/dev/null"))
    >>> gone.delete()
    >>> bool(gone)
    False
    """

    def __init__(self) -> None:
        self._found: deque[Any] = deque()
        self._kept: dict[int, Any] = {}
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self._found)

    def append(self, handle: Any) -> None:
        """Add a handle; safe at any moment, in any thread."""
        self._found.append(handle)

    def forget(self) -> None:
        """Let all go, whoever is inside."""
        self._found.clear()

    def delete(self) -> None:
        """Delete them, under the policy."""
        kept = self._kept
        while self._found:
            if not kept:
                self._since = time.monotonic()
            handle = self._found.popleft()
            kept[id(handle)] = handle
            del handle
        # Referred to by the dictionary and by the argument, and by nothing else.
        for alone in [key for key in kept if sys.getrefcount(kept[key]) == 2]:
            del kept[alone]
        if len(kept) >= _MOST or (kept and time.monotonic() > self._since + _LONGEST):
            kept.clear()
            # While it runs, no other thread's allocations begin a collection.
            gc.collect()
