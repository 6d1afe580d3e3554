"""What functions allocate besides their results, as far as that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.array import reductions

from gpusched.graph.functions import moments
from gpusched.graph.functions.partials import bare, parts
from gpusched.record.catalogue import has


def _floats(array: Any) -> int:
    """Return the bytes of an array's elements as the floating-point numbers of a mean."""
    return int(array.size) * (array.itemsize if array.dtype.kind in "fc" else 8)


def _deviations(given: list[Any]) -> int:
    """Return the bytes of the differences from the mean, which `np.var` squares in place."""
    return _floats(given[0])


def _moments(given: list[Any]) -> int:
    """Return the bytes of the differences and their squares."""
    return 2 * _floats(given[0])


_KNOWN = {np.var: _deviations, np.std: _deviations, reductions.moment_chunk: _moments,
          moments.moment_chunk: _moments}  # fmt: skip


def temporaries(function: Any, given: list[Any]) -> int | None:
    """Return the bytes that a call has allocated at most besides its result.

    Parameters
    ----------
    function
        What is called; partial applications and compositions of known functions are known too.
    given
        The arrays among its arguments.

    Returns
    -------
    int or None
        None where that is not known, as of a function of the user's own.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.inspection.temporaries import temporaries
    >>> x = np.ones((100, 10))
    >>> temporaries(np.exp, [x]), temporaries(np.var, [x]), temporaries(np.linalg.svd, [x])
    (0, 8000, None)
    """
    found = 0
    for part in parts(function):
        part = bare(part)
        if isinstance(part, np.ufunc) or has(part, "lean"):
            continue
        known = next((rule for name, rule in _KNOWN.items() if name is part), None)
        if known is None or not given:
            return None
        found = max(found, known(given))
    return found
