"""Gaps that are filled with the last number before them, as xarray's ``ffill`` and ``bfill`` do.

That is a scan, which joins two values to the second one, or to the first where the second is NaN.
How far a number goes is another scan, of the places of numbers, in the same kernel.

bottleneck and numbagg fill arrays; xarray and dask call one of the two for each chunk, and have
functions of their own that hand the last numbers of a chunk on to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import Any

import numpy as np

from gpusched.adapters import filling
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.kernel import LAST_NUMBER
from gpusched.plan.expression import UnfusibleError
from gpusched.record.chunk import LazyChunk
from gpusched.record.handlers import axis_of, honoured, signature_of
from gpusched.record.record import Recorder
from gpusched.record.recorded import OfLibrary
from gpusched.record.scans import scanned
from gpusched.record.segments import reduced

PLACES = (np.dtype(np.int16), np.dtype(np.int32))
"""Of places along an axis, the first that has all: they are read and written as numbers are."""


def filled(array: Any, axis: Any, limit: Any = None) -> Any:
    """Record an array with the last number before it instead of each NaN, along an axis.

    Parameters
    ----------
    array
        A lazy chunk of float32 or float64.
    axis
        Which axis.
    limit
        How many NaN in a row are replaced; None for all of them.

    Raises
    ------
    UnfusibleError
        Where no kernel can do it; the message is the reason.
    """
    place, length = _along(array, axis)
    if limit is None:
        return scanned(array, LAST_NUMBER, place)
    kind = next((each.type for each in PLACES if length <= np.iinfo(each).max), None)
    whole = type(limit) is int or isinstance(limit, np.signedinteger)
    # The libraries refuse others, each in its own words.
    if not whole or not 0 <= limit <= np.iinfo(np.int32).max or kind is None:
        raise UnfusibleError(GraphBreak.OPTION, f"limit {limit!r} along {length} elements")
    found: Any = scanned(array, LAST_NUMBER, place)
    if limit >= length - 1:
        return found
    places = np.arange(length, dtype=kind).reshape(-1, *[1] * (array.ndim - place - 1))
    # There is no number before the first one, whatever place is taken for its.
    last: Any = scanned(np.where(np.isnan(array), kind(0), places), "maximum", place)
    return np.where(places - last <= kind(limit), found, array.dtype.type(np.nan))


def last_of(array: Any, axis: Any, keepdims: Any) -> Any:
    """Record the last number along an axis; where there is none, the last element.

    Elements are joined in their order, as those of one group.
    """
    place, length = _along(array, axis)
    found: Any = reduced(array, np.zeros(length, np.int64), 1, LAST_NUMBER, place)
    if not keepdims:
        found = found[(*[slice(None)] * place, 0)]
    return found


def _along(array: Any, axis: Any) -> tuple[int, int]:
    """Return which axis is gone along, and its length; `UnfusibleError` where no kernel can."""
    if not isinstance(array, LazyChunk) or not array.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "filling of an array without axes")
    if array.dtype not in (np.float32, np.float64):
        raise UnfusibleError(GraphBreak.DTYPE, f"filling of {array.dtype}")
    if not math.prod(array.shape):
        raise UnfusibleError(GraphBreak.EMPTY, "filling of an empty array")
    place = axis_of(axis, array.ndim)
    return place, array.shape[place]


# Functions of libraries, as their parameters are ------------------------------------------


def _push(a: Any, n: Any = None, axis: Any = -1) -> Any:
    return filled(a, axis, n)


def _push_chunk(array: Any, n: Any = None, axis: Any = -1) -> Any:
    return filled(array, axis, n)


def _push_for_scan(a: Any, axis: Any, dtype: Any = None) -> Any:
    del dtype  # xarray's function is asked for the array's own, and returns that in any case.
    return filled(a, axis)


def _ffill(arr: Any, *, limit: Any = None, axis: Any = -1) -> Any:
    return filled(arr, axis, limit)


def _bfill(arr: Any, *, limit: Any = None, axis: Any = -1) -> Any:
    place, _ = _along(arr, axis)
    backwards = (*[slice(None)] * place, slice(None, None, -1))
    return filled(arr[backwards], place, limit)[backwards]


def _nanlast(values: Any, axis: Any, keepdims: Any = False) -> Any:
    if type(axis) is tuple and len(axis) == 1:
        (axis,) = axis
    return last_of(values, axis, keepdims)


def _join(a: Any, b: Any) -> Any:
    return np.where(np.isnan(b), a, b)


RECORDED: dict[str, Callable[..., Any]] = {
    "bottleneck.push": _push,
    "numbagg.ffill": _ffill,
    "numbagg.bfill": _bfill,
    "dask push": _push_chunk,
    "dask join": _join,
    "xarray push": _push_chunk,
    "xarray push for scan": _push_for_scan,
    "xarray join": _join,
    "xarray last": _nanlast,
}
"""By what `gpusched.adapters.filling` calls them, functions of libraries as they are recorded."""


@dataclass(frozen=True)
class Filling(OfLibrary):
    """A library's function that fills gaps, or hands on what they are filled with."""

    function: Any
    """The function itself, which changes none of its arguments."""
    meaning: str
    """Name in `RECORDED`."""
    lasts = True

    @property
    def __name__(self) -> str:
        return str(self.function.__name__)

    def __dask_tokenize__(self) -> Any:
        return "gpusched.filling", self.meaning

    @property
    def named(self) -> Set[str]:  # type: ignore[override]
        """The parameters of what records it."""
        return signature_of(RECORDED[self.meaning]).parameters.keys()

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        """Whether it is what hands numbers on."""
        return RECORDED[self.meaning] is _join

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record what the function makes of a lazy chunk."""
        del recorder
        if not args:
            raise UnfusibleError(GraphBreak.OPTION, "an array that is given by its name")
        return honoured(RECORDED[self.meaning], *args, **options)


def owns(function: Any) -> bool:
    """Return whether a function is one of these."""
    return filling.meaning(function) is not None


def form(function: Any) -> Filling | None:
    """Return what records a function of these as it is now.

    None where xarray would call a library that is not installed, or raise an error.

    Examples
    --------
    >>> from gpusched.record.fills import form
    >>> form(max) is None
    True
    """
    found = filling.meaning(function)
    if found is None or (found.startswith("xarray push") and not filling.fills()):
        return None
    return Filling(function, found)
