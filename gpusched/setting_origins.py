"""Where each setting's value comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.config

from gpusched import config

_MISSING = object()


@dataclass(frozen=True)
class Setting:
    """One setting in force."""

    name: str
    """Dotted."""
    value: Any
    origin: str
    """``default``, a file's path, an environment variable, or ``set in Python``."""


def effective_settings() -> list[Setting]:
    """Return every setting of gpusched's with its value and where that comes from.

    Examples
    --------
    >>> from gpusched.setting_origins import effective_settings
    >>> [s.origin for s in effective_settings() if s.name == "gpusched.run.connect-timeout"]
    ['default']
    """
    sources = _sources()
    return [
        Setting(name, value, _origin(name, value, sources))
        for name, value in config.settings().items()
    ]


def origin_of(name: str, value: Any) -> str:
    """Return where a value of a setting, or what stands where a section belongs, comes from.

    Examples
    --------
    >>> from gpusched.setting_origins import origin_of
    >>> origin_of("gpusched.run.connect-timeout", "10s")
    'default'
    """
    return _origin(name, value, _sources())


def _sources() -> list[tuple[str, Mapping[str, Any]]]:
    """Return (origin, values) for everything that sets values, what wins first."""
    environment = [
        (name, dask.config.collect_env({name: value}))
        for name, value in os.environ.items()
        if name.startswith("DASK_GPUSCHED__")
    ]
    files = [
        (str(path), values)
        for path, values in dask.config.collect_yaml(dask.config.paths, return_paths=True)
    ]
    return [*environment, *reversed(files), ("default", config.defaults())]


def _origin(name: str, value: Any, sources: list[tuple[str, Mapping[str, Any]]]) -> str:
    for origin, values in sources:
        found = dask.config.get(name, _MISSING, config=dict(values))
        if found is not _MISSING:
            return origin if found == value else "set in Python"
    return "set in Python"
