"""Functions that take no longer than to write their result, and change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpusched.graph.partials import bare
from gpusched.record.catalogue import has


def parts(function: Any) -> Iterable[Any]:
    """Yield the functions that partial applications and compositions call in the end.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.quick import parts
    >>> list(parts(partial(np.sum, axis=0))) == [np.sum]
    True
    """
    if hasattr(function, "funcs"):
        for part in (function.first, *function.funcs):
            yield from parts(part)
    elif hasattr(function, "keywords") and hasattr(function, "func"):
        for part in (function.func, *filter(callable, function.args)):
            yield from parts(part)
    else:
        yield function


def callables(structure: Any) -> Iterable[Any]:
    """Yield the functions among arguments, which what is called may call."""
    if type(structure) in (tuple, list):
        for item in structure:
            yield from callables(item)
    elif type(structure) is dict:
        yield from callables(tuple(structure.values()))
    elif callable(structure) and not isinstance(structure, type):
        yield structure


def slow_part(function: Any) -> str | None:
    """Return the name of a part of `function` that is not known to be quick, or None.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.quick import slow_part
    >>> slow_part(np.sort), slow_part(np.sum)
    ('sort', None)
    """
    for part in parts(function):
        if not has(bare(part), "quick"):
            return str(getattr(part, "__name__", type(part).__name__))
    return None
