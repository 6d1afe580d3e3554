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


replaced: dict[str, Any] = {}
"""Values that files or the environment have where a section belongs, by its dotted name: dask puts
the defaults in their place. `gpusched.settings` raises errors for them."""


def register() -> None:
    """Add the defaults to dask's configuration; what is set already stays."""
    given = dask.config.get("gpusched", None)
    found = defaults()
    if not isinstance(given, Mapping | None):
        replaced["gpusched"] = given
    for section, values in found["gpusched"].items():
        value = given.get(section) if isinstance(given, Mapping) else None
        if isinstance(values, Mapping) and not isinstance(value, Mapping | None):
            replaced[f"gpusched.{section}"] = value
    dask.config.update_defaults(found)


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


class ChoiceError(ValueError):
    """A value cannot be chosen; the message has those that can."""


WORDS: dict[str, tuple[str, ...]] = {
    "device": ("auto", "off", "require"),
    "random": ("numpy", "device"),
    "fusion.compile": ("background", "wait", "off"),
    "fusion.compiler": ("service", "process"),
    "fusion.mathematics": ("exact", "fast"),
    "fusion.tier": ("any", "fused", "unfused"),
}
"""What settings take that are one of a few words."""


def chosen(name: str, value: Any) -> str:
    """Return a value of a setting that is one of a few words.

    Parameters
    ----------
    name
        Of the setting, without ``gpusched.``.
    value
        What it is set to. Without quotes, YAML takes "off" for false.

    Raises
    ------
    ChoiceError
        If that is another value.

    Examples
    --------
    >>> from gpusched import config
    >>> config.chosen("device", False)
    'off'
    """
    words = WORDS[name]
    found = "off" if value is False and "off" in words else value
    if found not in words:
        *others, last = map(repr, words)
        told = f"write {', '.join(others)} or {last}"
        raise ChoiceError(f"gpusched.{name} cannot be {value!r}: {told}")
    return str(found)


def word(name: str) -> str:
    """Return what the configuration has for a setting that is one of a few words, as `chosen`.

    Examples
    --------
    >>> import dask
    >>> from gpusched import config
    >>> with dask.config.set({"gpusched.fusion.tier": "fused"}):
    ...     config.word("fusion.tier")
    'fused'
    """
    return chosen(name, get(name))


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
