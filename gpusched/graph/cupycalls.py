"""Functions that are no kernels here, and that CuPy computes with the values of NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dask.array import chunk, reductions

from gpusched.graph.partials import bare

_SEARCHES = (chunk.argmax, chunk.argmin)
"""What dask's `arg_chunk` may search by: the first of several equal values, and the first NaN."""


def _is_search(function: Any) -> bool:
    # dask makes them when it is imported, so that they are sent as code, and arrive as others.
    return any(
        getattr(function, "__wrapped__", None) is each.__wrapped__
        and getattr(function, "__code__", None) == each.__code__
        for each in _SEARCHES
    )


def _arg_chunk(*args: Any, **kwargs: Any) -> Any:
    """Return what `arg_chunk` gives for NumPy's arrays: records, in host memory.

    For CuPy's, which have no records, it gives a dictionary.
    """
    found = reductions.arg_chunk(*args, **kwargs)
    values, places = found["vals"].get(), found["arg"].get()
    records = np.empty(values.shape, [("vals", values.dtype), ("arg", places.dtype)])
    records["vals"], records["arg"] = values, places
    return records


_CALLS: dict[Callable[..., Any], tuple[Callable[..., Any], int]] = {
    np.sort: (np.sort, 20), reductions.arg_chunk: (_arg_chunk, 3),
    # Of the records that it returns.
    reductions.arg_combine: (reductions.arg_combine, 0),
    reductions.arg_agg: (reductions.arg_agg, 0),
}  # fmt: skip
"""What is called on CuPy's arrays, and as how many of NumPy's simple calls it counts."""


def by_cupy(function: Any) -> bool:
    """Return whether a function may be called on CuPy's arrays.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.cupycalls import by_cupy
    >>> by_cupy(partial(np.sort, axis=0)), by_cupy(np.partition)
    (True, False)
    """
    inner = bare(function)
    if inner is reductions.arg_chunk:
        search = function.args[1:2] if isinstance(function, partial) else ()
        return bool(search) and _is_search(search[0])
    return any(inner is each for each in _CALLS)


def calls_of(function: Any) -> int:
    """Return how many of NumPy's simple calls such a function takes as long as.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.cupycalls import calls_of
    >>> calls_of(np.sort)
    20
    """
    return _CALLS[bare(function)][1]


def on_cupy(function: Any) -> Any:
    """Return what is called on CuPy's arrays instead of a function; most often itself.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.cupycalls import on_cupy
    >>> on_cupy(np.sort) is np.sort
    True
    """
    if isinstance(function, partial) and by_cupy(function):
        called = _CALLS[bare(function)][0]
        return partial(called, *function.args, **function.keywords)
    return function
