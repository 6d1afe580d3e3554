"""Marking functions that may be given lazy chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FUSIBLE = "__gpusched_fusible__"
"""Attribute of functions whose author asked for them to be recorded."""


def fusible(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function as one that may be given lazy chunks.

    gpusched records NumPy's functions, and functions of your own that it can show to be safe.
    Mark others that you know to be: they must not change their arguments in place, nor depend on
    the exact type of them, nor handle exceptions of NumPy's.  A marked function that cannot be
    shown to be safe is recorded again for each chunk, since it may depend on something that
    changes; where it does what a lazy chunk cannot do, it runs on real arrays.

    Parameters
    ----------
    function : callable
        A function of chunks, as `dask.array.map_blocks` takes. It is marked, and returned.

    Examples
    --------
    >>> import gpusched, numpy as np
    >>> @gpusched.fusible
    ... def relu(x):
    ...     return np.maximum(x, 0)
    """
    setattr(function, FUSIBLE, True)
    return function
