"""Programs that are kept between the graphs that use them, with the plans they have by then.

A plan is recorded by the first chunk that runs a program. A graph that comes again, as that of the
next time step does, would record it again for as many chunks as there are threads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusched.graph.program import Program

RECENT = 256
"""Programs that are kept at most."""

_recent: dict[Any, Program] = {}
_lock = threading.Lock()


def keep(key: Any, program: Program) -> None:
    """Keep a program until that many others have been kept or used since."""
    with _lock:
        _recent.pop(key, None)
        _recent[key] = program
        while len(_recent) > RECENT:
            del _recent[next(iter(_recent))]


def lasts(value: Any) -> bool:
    """Return whether all functions that a value is, or holds, are there for good.

    To keep others would be to keep what they hold, such as the arrays that a function of the user's
    reads.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.lasting import lasts
    >>> lasts(np.add), lasts(partial(np.sum, axis=0)), lasts(lambda x: x + 1)
    (True, True, False)
    """
    if type(value) in (tuple, list):
        return all(map(lasts, value))
    if type(value) is dict:
        return all(map(lasts, value.values()))
    if isinstance(value, type) or not callable(value):
        return True
    return all(map(lasts, inside)) if (inside := _inside(value)) else _is_of_a_module(value)


def _inside(function: Any) -> Iterable[Any]:
    """Return what a composition or a partial application holds."""
    if hasattr(function, "funcs"):
        return function.first, *function.funcs
    if hasattr(function, "keywords") and hasattr(function, "func"):
        return function.func, function.args, function.keywords
    return ()


def _is_of_a_module(function: Any) -> bool:
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return getattr(module, getattr(function, "__qualname__", ""), None) is function
