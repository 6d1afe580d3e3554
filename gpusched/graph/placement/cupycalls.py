"""Functions that are no kernels here, and of which CuPy's arrays come out with NumPy's values.

They only move elements, or CuPy computes them: products and Fourier transforms are equal but for
the order in which they add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from dask.array import reductions
from dask.array.einsumfuncs import chunk_einsum

from gpusched.adapters.arrays import chunk_sum, matmul, tensordot
from gpusched.backends.libraries import called
from gpusched.dataclass import dataclass
from gpusched.graph.functions.known import pieces
from gpusched.graph.functions.partials import bare, parts
from gpusched.record.catalogue import has
from gpusched.record.views import is_basic


def moves_elements(function: Any) -> bool:
    """Return whether a function only moves elements, or what it is composed of does.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.placement.cupycalls import moves_elements
    >>> moves_elements(partial(np.transpose, axes=(1, 0))), moves_elements(np.sort)
    (True, False)
    """
    return all(has(part, "moves") for part in parts(function))


def picks(function: Any, args: Sequence[Any]) -> bool:
    """Return whether a call takes elements by arrays or lists of indices, as far as can be seen.

    CuPy's arrays raise no error for such an index that is too large. dask's own `_shuffle` has
    looked at its indices.

    Examples
    --------
    >>> import operator
    >>> from gpusched.graph.placement.cupycalls import picks
    >>> picks(operator.getitem, ("x", (slice(3), None, 2))), picks(operator.getitem, ("x", [1, 2]))
    (False, True)
    """
    if function is pieces:
        return not all(is_basic(index) for cuts in args[1] for _, index in cuts)
    return has(function, "picks") and not all(map(is_basic, args[1:]))


def _sort(a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what `numpy.sort` gives, in the order in memory that the array has."""
    import cupy

    found = np.sort(a, *args, **kwargs)
    if found.shape != a.shape:
        return found
    laid_out = cupy.empty_like(a, order="K")
    laid_out[...] = found
    return laid_out


def missing_dtype(arrays: Iterable[Any]) -> Any:
    """Return a dtype among those of some arrays that CUDA's libraries lack; None if they have all.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.placement.cupycalls import missing_dtype
    >>> missing_dtype([np.ones(3), np.arange(3), 2])
    dtype('int64')
    """
    found = [each.dtype for each in arrays if hasattr(each, "dtype")]
    return next((dtype for dtype in found if dtype.char not in "fdFD"), None)


class _ByLibrary:
    """Calls a function of which CUDA's libraries have the whole, for their dtypes alone.

    Of others, such as integers and truth values, CuPy has rules of its own.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        missing = missing_dtype(args)
        if missing is not None:
            raise TypeError(f"dtype {missing}")
        return called(self._function, *args, **kwargs)


_PRODUCTS = (matmul, tensordot, chunk_einsum, chunk_sum, np.dot, np.matmul, np.tensordot)
"""Products of matrices, and the sum of those of which dask makes one chunk."""

_TRANSFORMS = tuple(
    getattr(np.fft, inverse + kind + rank)
    for inverse in ("", "i")
    for kind, ranks in (("fft", ("", "2", "n")), ("rfft", ("", "2", "n")), ("hfft", ("",)))
    for rank in ranks
)


@dataclass(frozen=True)
class CuPyCall:
    """What is called on CuPy's arrays instead of a function."""

    function: Callable[..., Any]
    calls: int
    """As how many of NumPy's simple calls it counts."""
    by_library: bool = False
    """Whether CUDA's libraries have the whole of it."""


_CALLS: tuple[tuple[Any, CuPyCall], ...] = (
    (np.sort, CuPyCall(_sort, 20)),
    # Of records, which are in host memory.
    (reductions.arg_combine, CuPyCall(reductions.arg_combine, 0)),
    (reductions.arg_agg, CuPyCall(reductions.arg_agg, 0)),
    *((function, CuPyCall(_ByLibrary(function), 4, True)) for function in _PRODUCTS),
    *((function, CuPyCall(_ByLibrary(function), 10, True)) for function in _TRANSFORMS),
)


def cupy_call(function: Any) -> CuPyCall | None:
    """Return what is called on CuPy's arrays instead of a function; None if that is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.placement.cupycalls import cupy_call
    >>> cupy_call(np.sort).calls, cupy_call(np.fft.fft).by_library, cupy_call(np.partition)
    (20, True, None)
    """
    inner = bare(function)
    return next((found for each, found in _CALLS if each is inner), None)


def by_library(function: Any) -> bool:
    """Return whether a function is one that CUDA's libraries have the whole of."""
    found = cupy_call(function)
    return found is not None and found.by_library


def on_cupy(function: Any) -> Any:
    """Return what is called on CuPy's arrays instead of a function; most often itself."""
    found = cupy_call(function)
    if found is None or not isinstance(function, partial):
        return function if found is None else found.function
    return partial(found.function, *function.args, **function.keywords)
