"""Where the user's program made each array: noted while dask builds the graph.

`enable` switches it on, with dask's own hook for this (the configuration's ``array_plugins``).
It costs about a microsecond an array. Only a code object and a position in it are noted; lines and
variable names are worked out when somebody asks.
"""

from __future__ import annotations

from typing import Any

import dask

from gpusched.graph import early
from gpusched.newest import Newest
from gpusched.record.callers import Site, of_program

LIMIT = 50_000
"""Arrays remembered; the oldest goes first."""

_sites: Newest[str, Site] = Newest(LIMIT)
_last: Newest[Site, str] = Newest(LIMIT)
"""The name of the last array that was made there: set with `_sites`, so that it stays as long."""


def note(array: Any) -> None:
    """Note where an array is made; one of dask's ``array_plugins``."""
    if not early.is_prepared:
        early.prepare()
    site = of_program(1)
    if site is None:
        return
    _sites[array.name] = site
    _last[site] = array.name


def site_of(name: str) -> Site | None:
    """Return where an array of that name was made, if it was noted."""
    return _sites.get(name)


def is_last(name: str) -> bool:
    """Return whether an array is the last one made by its expression: what a variable then holds.

    Examples
    --------
    >>> import dask.array as da
    >>> import gpusched
    >>> from gpusched.graph.callsites import is_last
    >>> with gpusched.enable():
    ...     total = da.ones(10).sum()
    >>> is_last(total.name)
    True
    """
    site = _sites.get(name)
    return site is not None and _last.get(site) == name


def plugins(watching: bool) -> Any:
    """Return what ``array_plugins`` is to be; None where nothing is to be set."""
    others = [p for p in dask.config.get("array_plugins", None) or [] if p is not note]
    if watching and dask.config.get("gpusched.inspection.call-sites", True):
        return [*others, note]
    return others or None
