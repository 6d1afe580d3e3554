"""Functions that take no longer than to write their result, and change nothing."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from toolz import curry  # type: ignore[import-untyped]

from gpusched.graph.partials import bare

_NAMES = """
dask.array._shuffle._getitem dask.array._shuffle.concatenate_arrays dask.array.chunk.arange
dask.array.chunk.astype dask.array.chunk.getitem dask.array.chunk.linspace dask.array.chunk.sum
dask.array.chunk.trim dask.array.chunk.view dask.array.core._concatenate2
dask.array.core._enforce_dtype dask.array.core._pass_extra_kwargs
dask.array.core.concatenate_axes dask.array.core.concatenate_shaped
dask.array.core.concatenate3 dask.array.core.getter dask.array.core.getter_inline
dask.array.core.getter_nofancy dask.array.dispatch.concatenate_lookup
dask.array.chunk.argmax dask.array.chunk.argmin dask.array.reductions.arg_agg
dask.array.reductions.arg_chunk dask.array.reductions.arg_combine
dask.array.overlap._trim dask.array.random._apply_random dask.array.random._apply_random_func
dask.array.reductions.mean_agg dask.array.reductions.mean_combine
dask.array.reductions.moment_agg dask.array.reductions.moment_combine
dask.array.routines._chunk_sum
dask.array.wrap._broadcast_trick_inner numpy.broadcast_to numpy.concatenate numpy.empty
numpy.empty_like numpy.expand_dims numpy.full numpy.full_like numpy.max numpy.min numpy.ones
numpy.ones_like numpy.reshape numpy.squeeze numpy.stack numpy.sum numpy.transpose numpy.zeros
numpy.zeros_like operator.getitem gpusched.record.recorded.one_of
"""


@cache
def _quick() -> dict[int, Any]:
    return named(_NAMES)


def named(names: str) -> dict[int, Any]:
    """Return functions by their identity, since some cannot be hashed; the table keeps them alive.

    Parameters
    ----------
    names
        Of modules and functions, between blanks.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.quick import named
    >>> id(np.sum) in named("numpy.sum numpy.max")
    True
    """
    found = {}
    for name in names.split():
        module, _, attribute = name.rpartition(".")
        # What a library of another version lacks is left out.
        function = getattr(importlib.import_module(module), attribute, None)
        if isinstance(function, curry):
            function = function.func
        found[id(function)] = function
    return found


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


QUICK = "__gpusched_quick__"
"""Attribute of functions that are, besides those of the table."""


def is_marked(function: Any) -> bool:
    """Return whether a function, or what a partial application calls, has that attribute."""
    return bool(getattr(bare(function), QUICK, False))


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
        if id(part) not in _quick() and not is_marked(part):
            return str(getattr(part, "__name__", type(part).__name__))
    return None
