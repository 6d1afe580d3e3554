"""Settings: gpusched.yaml's defaults in dask's configuration, under "gpusched"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask.config
import yaml

DEFAULTS_FILE = Path(__file__).with_name("gpusched.yaml")
"""The defaults, each explained by a comment."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C, where PyYAML has it: 1 ms instead of 10 in every process."""


def defaults() -> dict[str, Any]:
    """Return the defaults, as nested mappings with the single root "gpusched".

    Examples
    --------
    >>> from gpusched import config
    >>> config.defaults()["gpusched"]["fusion"]["enabled"]
    True
    """
    text = DEFAULTS_FILE.read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.load(text, Loader=_LOADER)
    return content


def register() -> None:
    """Add the defaults to dask's configuration; what is set already stays."""
    dask.config.update_defaults(defaults())


def get(key: str) -> Any:
    """Return one setting; ``key`` is relative to "gpusched".

    Raises `KeyError` if no such setting exists.

    Examples
    --------
    >>> from gpusched import config
    >>> config.get("cluster.memory-limit")
    'auto'
    """
    return dask.config.get(f"gpusched.{key}")


def settings() -> dict[str, Any]:
    """Return every setting's present value by its dotted name.

    Examples
    --------
    >>> from gpusched import config
    >>> config.settings()["gpusched.run.connect-timeout"]
    '10s'
    """
    return dict(_flatten("gpusched", dask.config.get("gpusched")))


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for name, inner in value.items():
        # Environment variables have no hyphens; below a setting, names are the user's own.
        plain = name.replace("_", "-") if prefix.count(".") < 2 else name
        yield from _flatten(f"{prefix}.{plain}", inner)
