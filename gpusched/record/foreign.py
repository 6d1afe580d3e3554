"""Ufuncs of other libraries, which record themselves once somebody who knows the library says how.

numba's are no `numpy.ufunc`: what knows them is registered here.
"""

from __future__ import annotations

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


def register(library: Library) -> None:
    """Have a library's ufuncs recorded."""
    _libraries.append(library)


def is_foreign(function: Any) -> bool:
    """Return whether a function is a ufunc of a registered library.

    Examples
    --------
    >>> from gpusched.record.foreign import is_foreign
    >>> is_foreign(max)
    False
    """
    return any(library.owns(function) for library in _libraries)


def recorded_form(function: Any) -> RecordedFunction | None:
    """Return what records a ufunc of a registered library as it is now; else None."""
    return next((each.form(function) for each in _libraries if each.owns(function)), None)
