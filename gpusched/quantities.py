"""Numbers, sizes and times as users write them: read in one way by all options and settings.

And numbers of things as users read them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dask.utils import format_bytes, parse_bytes, parse_timedelta


def read_count(what: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """Read a whole number.

    Raises `ValueError` if it is not a whole number, or out of range.

    Parameters
    ----------
    what
        The option, argument or setting that has the value, for the message.
    value
        A number, or its text.
    least, most
        The range it must be in; None for no end.

    Examples
    --------
    >>> from gpusched.quantities import read_count
    >>> read_count("--workers", "4", least=1)
    4
    >>> read_count("--workers", "many", least=1)
    Traceback (most recent call last):
        ...
    ValueError: --workers cannot be 'many': write a whole number, 1 or more
    """
    try:
        number = int(value) if isinstance(value, int | str) else None
    except ValueError:
        number = None
    # True is 1 to Python, and to no reader.
    if isinstance(value, bool):
        number = None
    if number is None or number < least or (most is not None and number > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ValueError(f"{what} cannot be {value!r}: write a whole number, {bounds}")
    return number


def read_bytes(what: str, value: Any, least: int = 0) -> int:
    """Read a size, such as 1024 or "4 GiB", and return its bytes.

    Raises `ValueError` if it is not a size, or below the least.

    Examples
    --------
    >>> from gpusched.quantities import read_bytes
    >>> read_bytes("--memory", "4 GiB")
    4294967296
    """
    number = _read(parse_bytes, value)
    if not least <= number < math.inf:
        bound = f", {format_bytes(least)} or more" if least else ""
        raise ValueError(f"{what} cannot be {value!r}: write a size such as '4 GiB'{bound}")
    return int(number)


def read_seconds(what: str, value: Any, least: float = 0) -> float:
    """Read a length of time, such as 30 or "5 minutes", and return its seconds.

    Raises `ValueError` if it is not a time, or below the least.

    Examples
    --------
    >>> from gpusched.quantities import read_seconds
    >>> read_seconds("--lifetime", "5 minutes")
    300.0
    """
    seconds = _read(parse_timedelta, value)
    if not least <= seconds < math.inf:
        remedy = "write seconds, or a time such as '5 minutes'"
        raise ValueError(f"{what} cannot be {value!r}: {remedy}")
    return seconds


def count(number: int, word: str, many: str = "") -> str:
    """Return a number of things.

    Examples
    --------
    >>> from gpusched.quantities import count
    >>> count(1, "task"), count(2000, "task")
    ('1 task', '2,000 tasks')
    """
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def _read(parse: Callable[[Any], float], value: Any) -> float:
    """Return what dask reads a value as; NaN, which is in no range, if it cannot be read."""
    # dask reads a unit alone, or nothing, as one of it; and a truth value as a number.
    if isinstance(value, bool) or not any(letter.isdecimal() for letter in str(value)):
        return math.nan
    try:
        return _parsed(parse, value) if isinstance(value, str) else float(parse(value))
    except (AttributeError, ValueError, TypeError, LookupError, OverflowError):
        return math.nan


@lru_cache(maxsize=128)
def _parsed(parse: Callable[[Any], float], string: str) -> float:
    """Return what a string is read as: each graph reads some settings."""
    return float(parse(string))
