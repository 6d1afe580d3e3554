"""dask's ``argmax`` and ``argmin``, also without NaN: what they do with each chunk, as a kernel.

dask's function of a chunk returns records of values and places, with the places among all elements
of the array. Where the chunk is, is no part of a program here: values and places within the chunk
are recorded, and dask's own function makes the records of them. Of four chunks of 1,000 x 2,000
float64, `argmax` along columns of a chain took 14 ms rather than 39, `nanargmin` 12 rather than 57,
and `argmax` along rows 12 rather than 15 (processor time).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from dask.array import chunk, reductions

from gpusched.adapters.arrays import nanargmax, nanargmin
from gpusched.dataclass import dataclass
from gpusched.emit.kernel import FIRSTS
from gpusched.plan.expression import UnfusibleError
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, lazies
from gpusched.record.record import Recorder
from gpusched.record.recorded import Sealed, StandIn
from gpusched.record.reductions import first, nothing_in, reduced, report_if_nan

SEARCHES: dict[tuple[str, bool], tuple[Any, Any]] = {
    ("first_maximum", False): (chunk.max, chunk.argmax),
    ("first_minimum", False): (chunk.min, chunk.argmin),
    ("first_maximum", True): (chunk.nanmax, nanargmax),
    ("first_minimum", True): (chunk.nanmin, nanargmin),
}
"""What dask finds values and places with, by how they are joined and whether NaN is skipped."""


@dataclass(frozen=True)
class FirstOfChunk(StandIn):
    """dask's ``arg_chunk`` but for the place of the chunk, which `recorded` reads."""

    combine: str
    """Name in `gpusched.emit.kernel.FIRSTS`."""
    skip: bool
    """Whether NaN is skipped."""

    __name__ = "arg_chunk"
    sealed = (2,)

    @property
    def finish(self) -> Any:
        """What makes records of the result."""
        return recorded

    def plain(self, array: Any, axis: tuple[int, ...], offset: Any) -> Any:
        """Return values, places in the chunk, its shape and the axes, found as dask finds them."""
        del offset
        along = _along(array, axis)
        value, place = (f(array, axis=along, keepdims=True)
                        for f in SEARCHES[self.combine, self.skip])  # fmt: skip
        # NumPy's places have a stride of 0 along axes that are kept, which a kernel's have not.
        place = place.reshape(-1).reshape(place.shape)
        return value, place, array.shape, axis, self.combine

    def record(self, recorder: Recorder, array: LazyChunk, axis: tuple[int, ...],
               offset: Any) -> Any:  # fmt: skip
        """Return the same of a lazy chunk; what no kernel finds, NumPy does of the array."""
        del offset
        along = _along(array, axis)
        find, search = SEARCHES[self.combine, self.skip]
        skip = self.skip and array.dtype.kind == "f"
        numbers: Any = array
        if skip:
            numbers = np.where(np.isnan(array), nothing_in(self.combine), array)
        try:
            value, place = first(recorder, self.combine, numbers, along, True)
        except UnfusibleError:
            if self.skip:
                raise  # dask handles NumPy's error about nothing but NaN, which a plan meets later
            value = find(array, axis=along, keepdims=True)
            place = search(array, axis=along, keepdims=True)
        else:
            if skip:  # NaN of nothing else, of which NumPy warns
                combine = {"maximum": "fmax", "minimum": "fmin"}[FIRSTS[self.combine]]
                value = reduced(recorder, array, along, keepdims=True, combine=combine)
                recorder.flush(lazies([value, place]))  # in one kernel
                value = report_if_nan(value)
        return value, place, array.shape, axis, self.combine


def _along(array: Any, axis: tuple[int, ...]) -> int | None:
    return None if len(axis) == array.ndim or array.ndim == 1 else axis[0]


@own("quick")
def recorded(found: tuple[Any, ...], offset: Sealed) -> Any:
    """Return dask's records of values and places.

    Parameters
    ----------
    found
        What `FirstOfChunk` returns.
    offset
        Where the chunk is, as dask has it.

    Examples
    --------
    >>> from gpusched.graph.functions.extremes import FirstOfChunk, recorded
    >>> from gpusched.record.recorded import Sealed
    >>> place = Sealed(((5,), (8,)))
    >>> found = FirstOfChunk("first_maximum", False).plain(np.array([1.0, 3.0, 2.0]), (0,), place)
    >>> recorded(found, place)["arg"]
    array([6])
    """
    value, place, shape, axis, combine = found
    search = partial(_given, value=place)
    search.__name__ = "min" if combine == "first_minimum" else "max"  # type: ignore[attr-defined]
    chunk_found = partial(_given, value=value), search, _Shape(shape), axis
    return reductions.arg_chunk(*chunk_found, offset.value)


def _given(array: Any, axis: Any, keepdims: bool, value: Any) -> Any:
    return value


class _Shape:
    """What dask asks of a chunk of which it gets values and places."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.ndim = len(shape)


def first_for(function: Any) -> Any:
    """Return what programs call for dask's ``arg_chunk`` of one of its searches, or `function`.

    Examples
    --------
    >>> from functools import partial
    >>> from dask.array import chunk, reductions
    >>> from gpusched.graph.functions.extremes import first_for
    >>> first_for(partial(reductions.arg_chunk, chunk.max, chunk.argmax))
    FirstOfChunk(combine='first_maximum', skip=False)
    >>> first_for(max) is max
    True
    """
    if type(function) is not partial or function.func is not reductions.arg_chunk:
        return function
    if len(function.args) != 2 or function.keywords:
        return function
    given = function.args
    found = (key for key, known in SEARCHES.items() if all(map(_is_same, given, known)))
    return next((FirstOfChunk(*key) for key in found), function)


def _is_same(function: Any, known: Any) -> bool:
    """Return whether a function is a known one.

    dask makes some of them when it is imported, so that others of the same code may come from
    elsewhere: from another front end, or another process.
    """
    if function is known:
        return True
    wrapped, code = getattr(known, "__wrapped__", None), getattr(function, "__code__", None)
    if wrapped is None or code is None or getattr(function, "__wrapped__", None) is not wrapped:
        return False
    own_code = known.__code__
    return (code.co_code, code.co_names) == (own_code.co_code, own_code.co_names)
