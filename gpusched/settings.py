"""What each setting can be, checked before anything starts."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dask.config

from gpusched import config
from gpusched.quantities import read_bytes, read_count, read_seconds
from gpusched.setting_origins import origin_of

Kind = Callable[[str, Any], Any]
"""Reads a value; gets the setting's name, for the message of the `ValueError` that it raises."""


class SettingError(ValueError):
    """A setting has a value that it cannot have, or does not exist."""


class _UnknownError(ValueError):
    """There is no setting of that name."""


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} cannot be {value!r}: write true or false")


_WORDS = {True: "true", False: "false", None: "null"}
"""How YAML has Python's values."""


def _among(value: Any, allowed: tuple[Any, ...]) -> bool:
    return any(value is each or value == each for each in allowed)


def _choice(*allowed: Any) -> Kind:
    def read(name: str, value: Any) -> None:
        if not _among(value, allowed):
            words = " or ".join(_WORDS.get(each, str(each)) for each in allowed)
            raise ValueError(f"{name} cannot be {value!r}: write {words}")

    return read


def _word(name: str, value: Any) -> None:
    config.chosen(name.removeprefix("gpusched."), value)


def _mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} cannot be {value!r}: write a mapping, or null")


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} cannot be {value!r}: write a string")


def _bytes(name: str, value: Any) -> None:
    read_bytes(name, value)


def _share(name: str, value: Any) -> None:
    """Read bytes, or a fraction of the memory there is."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        read_bytes(name, value)
        return
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ValueError(
            f"{name} cannot be {value!r}: write bytes such as '4 GiB', a fraction such as 0.25, "
            f"or 0"
        )


def _count(least: int = 0) -> Kind:
    return lambda name, value: read_count(name, value, least)


def _seconds(name: str, value: Any) -> None:
    read_seconds(name, value)


def _or(kind: Kind, *others: Any) -> Kind:
    """Return a kind that some further values have; null is None."""

    def read(name: str, value: Any) -> None:
        if not _among(value, others):
            kind(name, value)

    return read


def _anything(name: str, value: Any) -> None:
    """Leave it to what reads the setting, whose own message says more."""


KINDS: dict[str, Kind] = {
    **dict.fromkeys(config.WORDS, _word),
    "fusion.enabled": _flag,
    "fusion.cache-directory": _or(_text, None, False),
    "fusion.cache-size": _or(_bytes, None),
    "fusion.import-early": _flag,
    "fusion.compile-patience": _seconds,
    "fusion.minimum-elements": _count(),
    "fusion.minimum-operations": _count(),
    "fusion.single-operation-bytes": _or(_bytes, None),
    "fusion.maximum-operations": _count(1),
    "fusion.merge-bytes": _or(_bytes, None),
    "fusion.strict": _flag,
    "batching.tasks": _count(),
    "batching.bytes": _bytes,
    "batching.chunk-bytes": _bytes,
    "batching.least": _or(_count(), None),
    "chunks.automatic": _flag,
    "memory.admission": _flag,
    "memory.strict": _flag,
    "memory.pool-limit": _share,
    "memory.pool-keep": _or(_seconds, None),
    "cluster.gpus": _anything,
    "cluster.workers": _or(_count(), None),
    "cluster.threads": _or(_count(1), None),
    "cluster.memory-limit": _anything,
    "cluster.dashboard-address": _or(_text, None, False),
    "cluster.handshake-timeout": _seconds,
    "cluster.kernel-memory": _bytes,
    "worker.device-memory-limit": _anything,
    "worker.pool": _choice("cupy", "async", "rmm", "none"),
    "worker.pool-size": _anything,
    "worker.pin": _choice(True, False, None),
    "worker.check-versions": _flag,
    "serialization.compression": _choice("auto", True, False),
    "serialization.bandwidth": _bytes,
    "serialization.between-gpus": _choice("auto", "host"),
    "serialization.without-gpu": _choice("error", "host"),
    "threadsafe.policies": _or(_mapping, None),
    "threadsafe.enabled": _flag,
    "threadsafe.slow-wait": _seconds,
    "threadsafe.start-timeout": _seconds,
    "inspection.call-sites": _flag,
    "profiling.maximum-events": _count(),
    "tuning.remembered": _flag,
    "tuning.options": _or(_mapping, None),
    "jobs.folder": _text,
    "jobs.checkpoints": _or(_text, None),
    "jobs.requeues": _count(),
    "jobs.start-timeout": _seconds,
    "run.connect-timeout": _seconds,
    "run.full-tracebacks": _flag,
}
"""What each setting can be, by its name below "gpusched"."""


SECTIONS = {"gpusched", *(f"gpusched.{name.partition('.')[0]}" for name in KINDS if "." in name)}
"""What has settings below it."""


def check() -> None:
    """Check all settings in force.

    Raises `SettingError` if one has a value that it cannot have, or does not exist; the message
    says where it was set, and what to write.

    Examples
    --------
    >>> import dask
    >>> from gpusched import settings
    >>> settings.check()
    >>> with dask.config.set({"gpusched.cluster.workers": "many"}):
    ...     settings.check()
    Traceback (most recent call last):
        ...
    gpusched.settings.SettingError: gpusched.cluster.workers cannot be 'many': write a whole \
number, 0 or more (set in Python)
    """
    for error, _ in _wrong(dask.config.get("gpusched", None) or {}):
        raise error from None


_checked: list[Any] = []
"""The names and values that `check_changes` found right last."""


def check_changes(stacklevel: int = 1) -> None:
    """Check the settings in force, if any is another object than when they were last checked.

    Raises `SettingError` if one has a value that it cannot have. What does not exist is only
    warned of: programs may have worked with it, and may keep settings of their own there.

    Parameters
    ----------
    stacklevel
        Of the warning, as `warnings.warn` counts: 1 is the caller of this function.

    Notes
    -----
    Takes some microseconds where nothing has changed. A thread that replaces `_checked` has checked
    what it holds.

    Examples
    --------
    >>> import dask
    >>> from gpusched import settings
    >>> with dask.config.set({"gpusched.fusion.compile": "never"}):
    ...     settings.check_changes()
    Traceback (most recent call last):
        ...
    gpusched.settings.SettingError: gpusched.fusion.compile cannot be 'never': write 'background', \
'wait' or 'off' (set in Python)
    """
    global _checked
    sections = dask.config.get("gpusched", None) or {}
    known = isinstance(sections, Mapping)
    found: list[Any] = [*sections] if known else [sections]
    for values in sections.values() if known else ():
        found += (*values, *values.values()) if isinstance(values, Mapping) else (values,)
    # By identity: values may have no equality, and those that are kept here are not used again.
    if len(found) == len(_checked) and all(map(operator.is_, found, _checked)):
        return
    for error, exists in _wrong(sections):
        if exists:
            raise error from None
        warnings.warn(str(error), stacklevel=stacklevel + 1)
    _checked = found


def _wrong(sections: Any) -> Iterator[tuple[SettingError, bool]]:
    """Yield what is wrong with settings, and whether there is a setting of that name."""
    for name, value in [*config.replaced.items(), *_given(sections)]:
        try:
            _kind(name)(name, value)
        except ValueError as error:
            found = SettingError(f"{error} ({_origin(name, value)})")
            yield found, not isinstance(error, _UnknownError)


def _given(sections: Any) -> list[tuple[str, Any]]:
    if not isinstance(sections, Mapping):
        return [("gpusched", sections)]
    found: list[tuple[str, Any]] = []
    for section, values in sections.items():
        name = f"gpusched.{section}".replace("_", "-")
        if isinstance(values, Mapping):
            found += [(f"{name}.{key}".replace("_", "-"), each) for key, each in values.items()]
        else:
            found.append((name, values))
    return found


def _kind(name: str) -> Kind:
    if name in SECTIONS:
        return _section
    known = name.removeprefix("gpusched.")
    if known in KINDS:
        return KINDS[known]
    import difflib  # Here, as only what does not exist needs it.

    near = difflib.get_close_matches(known, KINDS, n=1)
    hint = f"; did you mean gpusched.{near[0]}?" if near else ""
    raise _UnknownError(f"there is no setting {name}{hint}")


def _section(name: str, value: Any) -> None:
    found: Any = config.defaults()
    for part in name.split("."):
        found = found[part]
    one = f"{name}.{next(iter(found))}"
    raise ValueError(f"{name} cannot be {value!r}: it is a section, of settings such as {one}")


def _origin(name: str, value: Any) -> str:
    found = origin_of(name, value)
    return found if found.startswith("set in") else f"set by {found}"
