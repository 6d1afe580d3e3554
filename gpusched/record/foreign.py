"""Ufuncs of other libraries, which record themselves once somebody who knows the library says how.

numba's are no `numpy.ufunc`: what knows them is registered here.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gpusched.record.recorded import RecordedFunction


class Library(Protocol):
    """What knows the ufuncs of a library."""

    def owns(self, function: Any) -> bool:
        """Return whether a function is one of the library's, and leaves its arguments alone."""
        ...

    def form(self, function: Any) -> RecordedFunction | None:
        """Return what records such a function as it is now, or None if nothing can."""
        ...


_libraries: list[Library] = []
_lazy: dict[str, str] = {}


def register(library: Library) -> None:
    """Have a library's ufuncs recorded."""
    _libraries.append(library)


def register_lazy(module: str, knows: str) -> None:
    """Have a module imported that registers a library, once a module of the library is.

    Parameters
    ----------
    module
        Of the library: whoever has a ufunc of it has imported this.
    knows
        Of gpusched.
    """
    _lazy[module] = knows


def _registered() -> list[Library]:
    for module, knows in list(_lazy.items()):
        if module in sys.modules:
            importlib.import_module(knows)
            # Not before: another thread would go on without it.
            _lazy.pop(module, None)
    return _libraries


def is_foreign(function: Any) -> bool:
    """Return whether a function is a ufunc of a registered library.

    Examples
    --------
    >>> from gpusched.record.foreign import is_foreign
    >>> is_foreign(max)
    False
    """
    return any(library.owns(function) for library in _registered())


def recorded_form(function: Any) -> RecordedFunction | None:
    """Return what records a ufunc of a registered library as it is now; else None."""
    return next((each.form(function) for each in _registered() if each.owns(function)), None)
