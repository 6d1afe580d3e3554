"""What calls of NumPy's do for all lanes at once: the same at each place of the axes of lanes.

Each rule gives a call for the whole chunk from the call for one lane, or ends the recording.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.breaks import GraphBreak
from gpusched.emit.floatingpoint import REPORTED, note
from gpusched.plan.plan import changed
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, compute
from gpusched.record.handlers import is_default, is_integer
from gpusched.record.lane import (
    RULES,
    Lane,
    as_operand,
    filled,
    hidden_of,
    lanes_in,
    like_lane,
    spread,
    stop,
)

COPIED = 4
"""Times the elements of a chunk, at most, that NumPy copies: windows, or pairs, of a lane's numbers
are few, those of all lanes may be more than memory has."""


def _of_elements(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Compute each element of the operands there, which broadcast."""
    if function is np.where and len(args) != 3:
        stop(GraphBreak.INDEX("asks for places in lanes, of which each has another number"))
    operand = _operands if function is np.select else as_operand
    args, kwargs = lane._aligned(
        (tuple(map(operand, args)), {k: operand(v) for k, v in kwargs.items()})
    )
    return lane._results(function(*args, **kwargs))


def _operands(value: Any) -> Any:
    return list(map(as_operand, value)) if type(value) in (list, tuple) else value


def _like_lane(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Make an array like a lane, of one number: the same for all lanes until it is written to."""
    if args[0] is not lane or not kwargs.keys() <= {"dtype"} or lanes_in((args[1:], kwargs)):
        stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes with options"))
    like = function(np.broadcast_to(np.zeros((), lane.dtype), ()), *args[1:], **kwargs)
    number = 0 if function is np.empty_like else like[()]
    return filled(lane.whole._recorder, number, lane.shape, like.dtype)


def _of_one(place: int, lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Compute each element of one of the arguments by itself."""
    given = [*args]
    if len(given) <= place or given[place] is not lane:
        stop(GraphBreak.NO_KERNEL(f"calls {function.__name__} of lanes in another argument"))
    given[place] = lane.whole
    if lanes_in((given, kwargs)):
        stop(GraphBreak.NO_KERNEL(f"calls {function.__name__} with several arguments of lanes"))
    return lane._like(function(*given, **kwargs))


def _along(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Do the same at each place of the axes that a call does not go along."""
    bound = _bound(lane, function, args, kwargs)
    given = bound.arguments
    axis = given.get("axis", bound.signature.parameters["axis"].default)
    if axis is None and lane.ndim == 1:
        axis = -1
    if axis is None and function not in _REDUCTIONS:
        stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes of several axes"))
    if function in _COPYING and lane.whole.size > COPIED * lane.fork.elements:
        stop(GraphBreak.OPERAND(f"calls {function.__name__} of many times what lanes hold"))
    given["axis"] = lane._axes(axis)
    given[next(iter(given))] = lane._on_this_way() if function in _WITHOUT_NAN else lane.whole
    found = function(*bound.args, **bound.kwargs)
    if isinstance(found, list | tuple):
        return type(found)(map(lane._like, found))
    for k in range(np.ndim(given.get("q", 0))):
        found = np.moveaxis(found, k, lane.hidden + k)
    return lane._like(found)


def _bound(lane: Lane, function: Any, args: Any, kwargs: Any) -> inspect.BoundArguments:
    """Return the arguments of a call, of which the first alone is a lane."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    first, *others = bound.arguments.values()
    if first is not lane or lanes_in(others) or bound.arguments.get("out") is not None:
        stop(GraphBreak.NO_KERNEL(f"calls {function.__name__} with several arguments of lanes"))
    return bound


def _joined(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Join lanes and arrays along one of their axes."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    axis, arrays = given.pop("axis", 0), given.pop(next(iter(given)))
    asked = [name for name, value in given.items() if not is_default(function, name, value)]
    if asked or type(arrays) not in (list, tuple) or not is_integer(axis):
        stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes with options"))
    ndim = np.ndim(arrays[0]) + (function is np.stack)
    axis = normalize_axis_index(int(axis), ndim) + lane.hidden
    hidden = hidden_of(arrays)
    return lane._like(function([spread(each, hidden) for each in arrays], axis=axis))


def _arranged(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Make a view that keeps the order of elements, as NumPy makes it of one lane."""
    bound = _bound(lane, function, args, kwargs)
    bound.arguments[next(iter(bound.arguments))] = np.arange(lane.size).reshape(lane.shape)
    found = function(*bound.args, **bound.kwargs)
    if not np.array_equal(found.ravel(), np.arange(lane.size)):
        stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes in another order"))
    return lane._like(lane.whole.reshape(*lane.whole.shape[: lane.hidden], *found.shape))


def _transposed(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Give the axes of a lane another order."""
    axes = _bound(lane, function, args, kwargs).arguments.get("axes")
    order = lane._axes(tuple(range(lane.ndim)[::-1] if axes is None else axes))
    return lane._like(np.transpose(lane.whole, (*range(lane.hidden), *order)))


def _product(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Multiply vectors or matrices."""
    if kwargs or len(args) != 2 or np.result_type(*args).char not in "fd":
        stop(GraphBreak.DTYPE(f"calls {function.__name__} of lanes of such numbers"))
    left, right = args
    if np.ndim(left) == np.ndim(right) == 2 and function not in (np.inner, np.vdot):
        wholes = [each.whole if type(each) is Lane else each for each in args]
        return lane._like(np.matmul(wholes[0], wholes[1]))
    if np.ndim(left) not in (1, 2) or np.ndim(right) != 1:
        stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes of several axes"))
    if np.shape(left)[-1] != np.shape(right)[-1] or (function is np.vdot and np.ndim(left) > 1):
        stop(GraphBreak.OPERAND(f"calls {function.__name__} of lanes of other shapes"))
    return np.sum(left * right, axis=-1)


def _with_an_axis(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Give numbers an axis."""
    found = [np.reshape(each, 1) if np.ndim(each) == 0 else each for each in args]
    return found[0] if len(found) == 1 else tuple(found)


def _windows(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Make windows along the only axis."""
    given = _bound(lane, function, args, kwargs).arguments
    if lane.ndim != 1 or given.keys() > {"x", "window_shape", "axis"}:
        stop(GraphBreak.OPTION("takes windows of lanes of several axes"))
    return lane._like(function(lane.whole, given["window_shape"], axis=lane.whole.ndim - 1))


def _convolved(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Convolve two vectors, by sums of products within windows."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    long, short, mode = as_operand(given["a"]), as_operand(given["v"]), given.get("mode", "full")
    if np.ndim(long) != 1 or np.ndim(short) != 1 or mode not in ("full", "same", "valid"):
        stop(GraphBreak.OPTION("calls convolve of lanes with options"))
    if len(short) > len(long):
        long, short = short, long
    count, size = len(short), len(long)
    if np.result_type(long, short).char not in "fd" or type(long) is not Lane:
        stop(GraphBreak.DTYPE("calls convolve of lanes of other numbers"))
    if mode == "valid" or count == 1:
        return np.sum(sliding_window_view(long, count) * short[::-1], axis=-1)
    beyond = np.zeros(count - 1, long.dtype)
    windows = sliding_window_view(np.concatenate([beyond, long, beyond]), count)
    places = np.arange(size + count - 1)[:, np.newaxis] + np.arange(1 - count, 1)
    products = np.where((places >= 0) & (places < size), windows * short[::-1], long.dtype.type(0))
    start = (count - 1) // 2 if mode == "same" else 0
    return np.sum(products, axis=-1)[start : start + size if mode == "same" else None]


def _einsum(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Add products, with the axes of which each place has a lane before all others."""
    subscripts, *operands = args
    known = type(subscripts) is str and "->" in subscripts and "." not in subscripts
    if not known or kwargs or subscripts.count(",") + 1 != len(operands):
        stop(GraphBreak.OPTION("calls einsum of lanes with options"))
    given, result = subscripts.replace(" ", "").split("->")
    terms = ["..." * (type(each) is Lane) + term
             for term, each in zip(given.split(","), operands, strict=True)]  # fmt: skip
    wholes = [each.whole if type(each) is Lane else each for each in operands]
    return lane._like(function(f"{','.join(terms)}->...{result}", *wholes))


@own("portable")
def neighbours(points: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return where numbers are among sorted points, as `numpy.interp` computes with them.

    Parameters
    ----------
    points
        At least two, sorted. NumPy repeats the calls for others.
    new
        The numbers.

    Returns
    -------
    tuple of arrays
        For each number the place of the point before it, how far it is from that and from the next
        one, how far these are apart, and whether it is before all points, on one, or behind all.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.lanerules import neighbours
    >>> neighbours(np.array([0.0, 2.0, 4.0]), np.array([3.0]))[:4]
    (array([1]), array([1.]), array([-1.]), array([2.]))
    """
    if not (points[1:] >= points[:-1]).all():
        note(REPORTED)
    first = (np.searchsorted(points, new, side="right") - 1).clip(0, len(points) - 2)
    low, high = points[first], points[first + 1]
    with np.errstate(all="ignore"):
        return (first, new - low, new - high, high - low, new < points[0], new == low,
                new >= points[-1])  # fmt: skip


def _interpolated(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Interpolate, at numbers of lanes or between values of lanes."""
    if len(args) != 3 or kwargs:
        stop(GraphBreak.OPTION("calls interp of lanes with options"))
    new, points, values = args
    if type(values) is not Lane:
        return _of_one(0, lane, function, args, kwargs)
    new, points = _shared(new), _shared(points)
    real = all(np.result_type(each).kind in "biuf" for each in (new, points, values))
    if not real or np.ndim(new) != 1 or len(points) < 2 or values.shape != points.shape:
        stop(GraphBreak.OPERAND("interpolates between lanes of other shapes"))
    recorder, wide = lane.whole._recorder, np.dtype(float)
    given = [each.astype(wide) for each in (points, new)]
    found = compute(recorder, neighbours, tuple(given), {})
    first, away, back, width, before, on, behind = found
    low, high = (values.whole.astype(wide)[..., k] for k in (first, first + 1))
    with np.errstate(all="ignore"):  # NumPy reports nothing of it.
        slope = (high - low) / width
        line = slope * away + low
        line = np.where(np.isnan(line), slope * back + high, line)
        line = np.where(np.isnan(line) & (low == high), low, line)
    line = np.where(on, low, line)
    line = np.where(before, values.whole[..., :1].astype(wide), line)
    line = np.where(behind, values.whole[..., -1:].astype(wide), line)
    return lane._like(np.where(np.isnan(given[1]), given[1], line))


def _shared(value: Any) -> Any:
    """Return an array that all lanes have in common."""
    if type(value) is not Lane:
        return np.asarray(value) if not isinstance(value, LazyChunk) else value
    if any(length != 1 for length in value.whole.shape[: value.hidden]):
        stop(GraphBreak.OPERAND("interpolates at other points in each lane"))
    return value.whole[(0,) * value.hidden]


def _fitted(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Fit polynomials, of which NumPy fits as many as there are columns.

    Not those that have no finite result: an infinity is in the scale that LAPACK has for all.
    """
    if lane.dtype.kind not in "biuf":
        stop(GraphBreak.DTYPE(f"fits polynomials to {lane.dtype}"))
    if len(args) != 3 or kwargs or args[1] is not lane or lane.ndim != 1 or lanes_in(args[::2]):
        stop(GraphBreak.OPTION("fits polynomials to lanes with options"))
    hidden = lane.whole.shape[: lane.hidden]
    columns = lane.whole.reshape(-1, lane.size).T
    finite = np.isfinite(columns).all(axis=0)
    found = function(args[0], np.where(finite, columns, lane.dtype.type(0)), args[2])
    found = np.where(finite, found, np.nan)
    return lane._like(found.T.reshape(*hidden, found.shape[0]))


def _asked(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Answer what is known of a lane by its dtype and shape."""
    del lane
    args, kwargs = changed((args, kwargs), lambda v: like_lane(v) if type(v) is Lane else v)
    return function(*args, **kwargs)


_REDUCTIONS = (np.all, np.amax, np.amin, np.any, np.count_nonzero, np.max, np.mean,
               np.median, np.min, np.nanmax, np.nanmean, np.nanmedian, np.nanmin, np.nanpercentile,
               np.nanprod, np.nanquantile, np.nanstd, np.nansum, np.nanvar, np.percentile, np.prod,
               np.quantile, np.std, np.sum, np.var)  # fmt: skip
"""Functions that reduce the axes that they are given, and all axes if none is given."""
_ALONG = (np.argmax, np.argmin, np.argpartition, np.argsort, np.cumprod, np.cumsum,
          np.diff, np.fft.fft, np.fft.ifft, np.fft.irfft,
          np.fft.rfft, np.flip, np.gradient, np.nanargmax, np.nanargmin, np.nancumprod,
          np.nancumsum, np.partition, np.repeat, np.roll, np.sort, np.take)  # fmt: skip
"""Functions of one axis."""
_ELEMENTS = (np.angle, np.around, np.clip, np.copy, np.fix, np.imag, np.isclose,
             np.nan_to_num, np.real, np.round, np.select, np.where)  # fmt: skip
_LIKE = (np.empty_like, np.full_like, np.ones_like, np.zeros_like)
_ASKING = (np.iscomplexobj, np.isrealobj, np.ndim, np.result_type, np.shape, np.size)
_ARRANGING = (np.expand_dims, np.ravel, np.reshape, np.squeeze)
_WITHOUT_NAN = (np.nanargmax, np.nanargmin, np.nanmax, np.nanmean, np.nanmedian, np.nanmin,
                np.nanpercentile, np.nanquantile, np.nanstd, np.nanvar)  # fmt: skip
"""Of these, those that report lanes of NaN alone."""
_COPYING = (np.argpartition, np.argsort, np.fft.fft, np.fft.ifft, np.fft.irfft, np.fft.rfft,
            np.median, np.nanmedian, np.nanpercentile, np.nanquantile, np.partition, np.percentile,
            np.quantile, np.sort)  # fmt: skip
"""Of these, those that NumPy runs, on a copy."""

RULES.update(
    {
        **dict.fromkeys((*_REDUCTIONS, *_ALONG), _along),
        **dict.fromkeys(_ELEMENTS, _of_elements),
        **dict.fromkeys(_LIKE, _like_lane),
        **dict.fromkeys(_ASKING, _asked),
        **dict.fromkeys(_ARRANGING, _arranged),
        **dict.fromkeys((np.concatenate, np.stack), _joined),
        **dict.fromkeys((np.dot, np.inner, np.vdot), _product),
        np.digitize: partial(_of_one, 0),
        np.interp: _interpolated,
        np.convolve: _convolved,
        np.einsum: _einsum,
        np.isin: partial(_of_one, 0),
        np.searchsorted: partial(_of_one, 1),
        np.transpose: _transposed,
        np.atleast_1d: _with_an_axis,
        sliding_window_view: _windows,
        np.polyfit: _fitted,
    }
)
