"""Asked for its routes by each scheduler that starts: the moment to register the pages."""

from __future__ import annotations

from typing import Any

from gpusched.dashboard.registration import register


def __getattr__(name: str) -> Any:
    # An attribute would be read as well, but not tell that a further scheduler starts: the first
    # one of a process may have no dashboard.
    if name != "routes":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    register()
    return []
