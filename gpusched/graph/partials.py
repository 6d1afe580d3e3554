"""Partial applications, as the calls that they come to."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

_PLACEHOLDER = getattr(functools, "Placeholder", None)
"""Since Python 3.14, an argument of a partial application that the call gives."""


def applied(
    function: Any, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return what is called in the end, and with what, by a call of partial applications.

    Objects of classes derived from `functools.partial` are not taken apart: they may do something
    else when they are called.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.graph.partials import applied
    >>> applied(partial(partial(max, 1), 2, key=abs), (3,), {"key": None}) == (
    ...     max, (1, 2, 3), {"key": None})
    True
    """
    args, kwargs = tuple(args), dict(kwargs)
    while type(function) is partial and not _waits(function):
        args = (*function.args, *args)
        kwargs = {**function.keywords, **kwargs}
        function = function.func
    return function, args, kwargs


def bare(function: Any) -> Any:
    """Return what a `functools.partial` calls in the end.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.graph.partials import bare
    >>> bare(partial(partial(max, 1), 2)) is max
    True
    """
    while type(function) is partial:
        function = function.func
    return function


def _waits(function: partial[Any]) -> bool:
    """Return whether the call gives one of the arguments before the last."""
    return _PLACEHOLDER is not None and any(a is _PLACEHOLDER for a in function.args)
