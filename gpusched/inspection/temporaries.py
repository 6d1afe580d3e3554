"""What functions allocate besides their results, as far as that is known."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from dask.array import reductions

from gpusched.graph import moments
from gpusched.graph.known import VIEWS
from gpusched.graph.partials import bare
from gpusched.graph.pieces import ELEMENTWISE
from gpusched.graph.quick import named, parts
from gpusched.inspection.standins import GETTERS

_NAMES = """
dask.array.chunk.arange dask.array.chunk.astype dask.array.chunk.linspace dask.array.chunk.max
dask.array.chunk.min dask.array.chunk.prod dask.array.chunk.sum dask.array.core._concatenate2
dask.array.core.concatenate3 dask.array.core.concatenate_axes dask.array.core.concatenate_shaped
dask.array.core.finalize dask.array.dispatch.concatenate_lookup dask.array.overlap._trim
dask.array.random._apply_random dask.array.random._apply_random_func
dask.array.reductions.chunk_max dask.array.reductions.chunk_min dask.array.reductions.mean_agg
dask.array.reductions.mean_chunk dask.array.reductions.mean_combine dask.array.routines._chunk_sum
dask.array.routines._matmul dask.array.wrap._broadcast_trick_inner numpy.all numpy.any
numpy.argmax numpy.argmin numpy.concatenate numpy.copy numpy.cumprod numpy.cumsum numpy.empty
numpy.empty_like numpy.full numpy.full_like numpy.max numpy.mean numpy.min numpy.ones
numpy.ones_like numpy.prod numpy.repeat numpy.reshape numpy.roll numpy.sort numpy.stack numpy.sum
numpy.tile numpy.zeros numpy.zeros_like operator.getitem
"""


@cache
def _nothing() -> dict[int, Any]:
    """Return the functions that allocate no more than their results, but for a few KiB."""
    return named(_NAMES) | {id(each): each for each in (*ELEMENTWISE, *GETTERS, *VIEWS)}


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
        if isinstance(part, np.ufunc) or id(part) in _nothing():
            continue
        known = next((rule for name, rule in _KNOWN.items() if name is part), None)
        if known is None or not given:
            return None
        found = max(found, known(given))
    return found
