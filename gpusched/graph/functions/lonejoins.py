"""dask's joins of parts that are only one: the part itself, or a copy that kernels do without."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
from dask.array.core import (
    chunks_from_arrays,
    concatenate3,
    concatenate_axes,
)
from dask.core import reshapelist

from gpusched.adapters.arrays import concatenate2
from gpusched.adapters.tasks import List, Task
from gpusched.backends.devices import device_of
from gpusched.plan.grids import concatenate_shaped
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, compute
from gpusched.record.functions import own_array
from gpusched.record.postponed import form_of, of_numpy
from gpusched.record.recorded import recorder_among


@own("view", "elementwise", "moves", "cuts", shown="concatenate")
def only_part(part: Any, axes: tuple[int, ...]) -> Any:
    """Return what dask's ``_concatenate2`` makes of one part.

    That is the part, of NumPy's own arrays with these axes. A subclass may become NumPy's array,
    and what has not the axes is an error.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.lonejoins import only_part
    >>> only_part(np.ones((1, 1)), (0, 1))
    array([[1.]])
    >>> only_part(np.float64(1), (0,))
    Traceback (most recent call last):
    ...
    ValueError: zero-dimensional arrays cannot be concatenated
    """
    if not axes or (_is_plain(part) and part.ndim > max(axes) and min(axes) >= 0):
        return part
    for _ in axes:
        part = [part]
    return concatenate2(part, axes=list(axes))


@own("view", "elementwise", "moves", "cuts", shown="concatenate")
def as_joined(part: Any, ndim: int) -> Any:
    """Return what dask makes of a part that it writes to an array of so many axes.

    That is the part, of NumPy's own arrays. Chunks that others have made may be something else,
    which NumPy's array is made of: of a dataframe, or of an array of xarray's, whose sums leave NaN
    out.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.lonejoins import as_joined
    >>> as_joined(np.float64(3), 1)
    array([3.])
    """
    if _is_plain(part) and part.ndim == ndim:
        return part
    for _ in range(ndim):
        part = [part]
    return concatenate3(part)


def _is_plain(part: Any) -> bool:
    """Return whether a part is an array of NumPy's, or stands for one, or is in device memory."""
    return type(part) in (np.ndarray, LazyChunk) or device_of(part) is not None


@own("keeps", "recorded", shown="concatenate")
def own_part(part: Any) -> Any:
    """Return what dask's ``concatenate_axes`` makes of one part, along any axes: a copy.

    Kernels do without (`recorded_own_part`): an interpolation moves 3 MB so rather than 9.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.lonejoins import own_part
    >>> own_part(np.ones((1, 1)))
    array([[1.]])
    """
    if type(part) is np.ndarray and part.ndim:
        return concatenate_shaped([part], (1,) * part.ndim)
    return concatenate_axes([part], [0])


def recorded_own_part(part: Any) -> Any:
    """`own_part`, of which kernels need no copy; others see one in C order, as dask's is."""
    if not (isinstance(part, LazyChunk) and part.ndim):
        return own_part(part)
    return recorded_join([part], (1,) * part.ndim)


def recorded_join(arrays: Any, shape: Any) -> Any:
    """`concatenate_shaped`, which kernels may do without: see `gpusched.plan.unjoined`."""
    recorder = recorder_among(arrays)
    if recorder is None:
        return concatenate_shaped(arrays, shape)
    alone = len(arrays) == math.prod(shape) == 1 and len(shape) == arrays[0].ndim
    # dask's copy is in C order, whatever the order of the array.
    if alone and (copy := own_array(arrays[0])) is not None:
        return copy
    return compute(recorder, concatenate_shaped, (arrays, shape), {}, copies=True)


@form_of(concatenate_shaped)
def _unfilled_join(arrays: Any, shape: Any) -> Any:
    """Return what a join of dask's returns, uninitialised: in C order, whatever that of the parts.

    dask takes their lengths from those at the edges, and repeats a part of length 1.
    """
    if not of_numpy(*arrays) or {len(shape)} != {each.ndim for each in arrays} or not shape:
        return None
    lengths = chunks_from_arrays(reshapelist(shape, arrays))
    if [each.shape for each in arrays] != list(itertools.product(*lengths)):
        return None
    return np.empty(tuple(map(sum, lengths)), arrays[0].dtype)


def copied_by_joining(value: Any) -> Any:
    """Return what dask's `concatenate_axes` copies, if a value is a call of that for one array."""
    if type(value) is not Task or value.func is not concatenate_axes:
        return value
    part = value.args[0]
    while type(part) is List and len(part.args) == 1:
        part = part.args[0]
    return value if type(part) is List else part


def of_one(function: Any, args: tuple[Any, ...]) -> tuple[Any, Any, tuple[int, ...]] | None:
    """Return what is called with what, in the end, where dask joins parts that are only one.

    Reductions of 50 chunks of 20 x 800 float64 along their rows took a fifth less processor time.

    Parameters
    ----------
    function
        As dask reduces what has been reduced in parts: what joins them, then what reduces them.
    args
        Nested lists of the parts.

    Returns
    -------
    tuple of a function, its argument and the axes of `only_part`, or None
        None if there are several parts, or it is another function.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.adapters.arrays import concatenate2
    >>> from gpusched.graph.functions.lonejoins import of_one
    >>> from toolz import compose
    >>> both = compose(np.max, partial(concatenate2, axes=[0, 1]))
    >>> of_one(both, ([["part"]],)) == (np.max, "part", (0, 1)), of_one(both, ([["one", "other"]],))
    (True, None)
    """
    first: Any = getattr(function, "first", None)
    funcs: Any = getattr(function, "funcs", ())
    if not isinstance(first, partial) or first.func is not concatenate2:
        return None
    if len(funcs) != 1 or len(args) != 1:
        return None
    part, axes = args[0], tuple(first.keywords.get("axes", ()))
    for _ in axes:
        if type(part) is not list or len(part) != 1:
            return None
        part = part[0]
    return None if type(part) is list else (funcs[0], part, axes)
