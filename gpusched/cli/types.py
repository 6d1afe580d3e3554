"""Types of options: each refuses a value at once, with the option, the value and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gpusched.files import why_not_written
from gpusched.quantities import read_bytes, read_count, read_seconds

Reader = Callable[[str, Any], Any]
"""Reads a value; gets the option, for the message of the `ValueError` that it raises."""


class Read(click.ParamType[Any]):
    """A value that a function reads.

    Examples
    --------
    >>> import click
    >>> from gpusched.cli.types import Read
    >>> from gpusched.quantities import read_bytes
    >>> option = click.Option(["--size"], type=Read("size", read_bytes))
    >>> option.type.convert("4 GiB", option, None)
    4294967296
    """

    def __init__(self, name: str, read: Reader) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what was read; `click.UsageError` for what cannot be."""
        try:
            return self._read(_spelling(param), value)
        except ValueError as error:
            raise click.UsageError(str(error), ctx) from None


def _spelling(param: click.Parameter | None) -> str:
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return "the argument" if param is None or param.name is None else param.name.upper()


def count(least: int = 0, most: int | None = None) -> Read:
    """Return the type of a whole number in a range.

    Examples
    --------
    >>> from gpusched.cli.types import count
    >>> count(1).convert("4", None, None)
    4
    """
    return Read("number", lambda what, value: read_count(what, value, least, most))


def seconds(least: float = 0) -> Read:
    """Return the type of a time, as in 30 or "5 minutes"; its value is in seconds.

    Examples
    --------
    >>> from gpusched.cli.types import seconds
    >>> seconds().convert("5 minutes", None, None)
    300.0
    """
    return Read("time", lambda what, value: read_seconds(what, value, least))


def size(least: int = 0) -> Read:
    """Return the type of a size in bytes; below the least, the unit was forgotten."""
    return Read("size", lambda what, value: read_bytes(what, value, least))


def _memory_limit(what: str, value: Any) -> Any:
    from gpusched.cluster.allocation import host_memory

    return _checked(lambda limit: host_memory(limit, 1), what, value)


def _device_memory_limit(what: str, value: Any) -> Any:
    from gpusched.cluster.allocation import device_memory

    return _checked(lambda limit: device_memory(limit, 0), what, value)


def _checked(check: Callable[[Any], object], what: str, value: Any) -> Any:
    try:
        check(value)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return value


MEMORY_LIMIT = Read("size", _memory_limit)
"""Host memory of a worker; the value stays as it was written."""

DEVICE_MEMORY_LIMIT = Read("size", _device_memory_limit)
"""Memory of a GPU for results; the value stays as it was written."""


def output_file(*suffixes: str) -> Read:
    """Return the type of a file to write, refused at once where that could not be done.

    Parameters
    ----------
    *suffixes
        One of which the name must end with, if any is given.

    Examples
    --------
    >>> from gpusched.cli.types import output_file
    >>> output_file(".html").convert("/no/such/folder/out.html", None, None)
    Traceback (most recent call last):
        ...
    click.exceptions.UsageError: the argument /no/such/folder/out.html: there is no folder \
/no/such/folder
    """

    def read(what: str, path: str) -> str:
        problem = why_not_written(path, suffixes)
        if problem:
            raise ValueError(f"{what} {path}: {problem}")
        return path

    return Read("file", read)
