"""Functions of a lane, for all lanes of a chunk at once: `numpy.apply_along_axis`, `numpy.vectorize`.

NumPy calls such a function for each lane. Here it runs once, on a lane that stands for all of them:
the chunk, whose first axes the function does not see. What a call of NumPy's does with the axes of
a lane, it does with those of the chunk, and for the axes that are not seen it does the same at each
place: so each lane of the result is what the function makes of that lane. Calls for which that is
not known end the recording (`RULES`).

Where a function goes on by whether something is true of its lane, lanes may differ. It then runs
once for each way that it can go, and each lane takes the result of its own; what operations report
of lanes that go another way, nobody is to see. A function changes nothing that others see, so that
it may run as often as it has ways.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.floatingpoint import enforced
from gpusched.plan.expression import UnfusibleError, UnrecordableError
from gpusched.plan.plan import changed, items
from gpusched.record.branches import has_numpys_bits
from gpusched.record.chunk import DEFERRED, LazyChunk, was_own
from gpusched.record.handlers import is_integer, records
from gpusched.record.record import Recorder

WAYS = 16
"""Ways that a function may go, at most: a loop that ends by what a lane holds would have any
number."""


class Fork:
    """The ways that a function goes by what is true of its lanes, one after the other.

    Notes
    -----
    Belongs to one recording.
    """

    def __init__(self, hidden: int) -> None:
        self.hidden = hidden
        """How many axes of a chunk its lanes do not have."""
        self._answers: list[bool] = []
        """What the function is to get, in order."""
        self._asked: list[Any] = []

    def truth(self, condition: Any) -> bool:
        """Return whether a condition is taken for true on this way."""
        self._asked.append(condition)
        if len(self._asked) > len(self._answers):
            self._answers.append(True)
        return self._answers[len(self._asked) - 1]

    @property
    def way(self) -> list[tuple[Any, bool]]:
        """The conditions that have been asked for on this way, with what they are taken for."""
        return list(zip(self._asked, self._answers, strict=False))

    def ways(self, function: Callable[[], Any]) -> list[tuple[list[tuple[Any, bool]], Any]]:
        """Return what a function gives on each way, and the conditions on it with their answers."""
        found = []
        while True:
            self._asked = []
            result = function()
            found.append((self.way, result))
            while self._answers and not self._answers[-1]:
                self._answers.pop()
            if not self._answers:
                return found
            if len(found) == WAYS:
                _stop(GraphBreak.OWN_DECIDES(f"goes more than {WAYS} ways by what lanes hold"))
            self._answers[-1] = False


def _stop(reason: Reason) -> NoReturn:
    raise UnrecordableError(reason)


class Lane(NDArrayOperatorsMixin):
    """A lane that stands for all lanes of a chunk.

    Parameters
    ----------
    whole
        The chunk, with the axes of all lanes before those of a lane.
    hidden
        How many of the former there are.
    fork
        Of the function that gets it.

    Notes
    -----
    Lives as long as one recording, in the thread of the recording.
    """

    __slots__ = ("fork", "hidden", "whole")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, whole: LazyChunk, hidden: int, fork: Fork) -> None:
        self.whole, self.hidden, self.fork = whole, hidden, fork

    def _like(self, whole: Any) -> Any:
        """Return another lane of those of which this is one."""
        return Lane(whole, self.hidden, self.fork)

    # What is known without computing ------------------------------------------------------

    @property
    def dtype(self) -> np.dtype:
        """The dtype, as NumPy's array has it."""
        return self.whole.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one lane."""
        return self.whole.shape[self.hidden :]

    @property
    def ndim(self) -> int:
        """How many axes one lane has; without any, it is a scalar of NumPy's."""
        return self.whole.ndim - self.hidden

    @property
    def size(self) -> int:
        """How many elements one lane has."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of one lane."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    # NumPy's protocols --------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if ufunc is np.matmul and out is None:
            return _product(self, ufunc, inputs, kwargs)
        if ufunc.signature is not None or not kwargs.keys() <= {"dtype", "axis", "keepdims"}:
            _stop(GraphBreak.NO_KERNEL(f"calls {ufunc.__name__} of lanes with options"))
        if method in ("reduce", "accumulate") and len(inputs) == 1 and out is None:
            axis = self._axes(kwargs.pop("axis", 0))
            found = getattr(ufunc, method)(self.whole, axis=axis, **kwargs)
        elif method == "__call__" and kwargs.keys() <= {"dtype"}:
            if out is not None and (len(out) != 1 or out[0] is not self or self.ndim):
                return self._updated(ufunc, inputs, kwargs, out)
            found = ufunc(*self._aligned(inputs), **kwargs)
        else:
            _stop(GraphBreak.NO_KERNEL(f"calls {ufunc.__name__}.{method} of lanes"))
        return self._results(found)

    def _updated(self, ufunc: np.ufunc, inputs: Any, kwargs: Any, out: Any) -> Any:
        """Write what a ufunc gives to a lane, as operators such as ``+=`` do."""
        target = out[0]
        if len(out) != 1 or type(target) is not Lane or not target.ndim:
            _stop(GraphBreak.OWN_ARGUMENTS("writes lanes to something else"))
        target._spread_for(*inputs)
        given = self._aligned((*inputs, target))[:-1]
        ufunc(*given, out=target.whole, **kwargs)
        return target

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = RULES.get(func)
        if rule is None:
            _stop(GraphBreak.NO_KERNEL(f"calls {func.__name__} of lanes, each of which is called"))
        return rule(self, func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        _stop(GraphBreak.OWN_DECIDES("makes an array of a lane of another library"))

    def _aligned(self, given: Any) -> Any:
        """Return what calls of elements are given, so that axes of lanes stand below each other."""
        most = max([np.ndim(each) for each in items(given)])
        return changed(given, partial(self._with_axes, most))

    def _with_axes(self, count: int, value: Any) -> Any:
        """Return a lane with so many axes, the first of length 1; others as they are."""
        if type(value) is not Lane:
            return value
        if value.ndim == count:
            return value.whole
        missing = (None,) * (count - value.ndim)
        return value.whole[(*(slice(None),) * self.hidden, *missing, ...)]

    def _axes(self, axis: Any) -> Any:
        """Return which axes of the chunk some of a lane are."""
        if axis is None:
            return tuple(range(self.hidden, self.whole.ndim))
        if type(axis) is tuple:
            return tuple(map(self._axes, axis))
        if not is_integer(axis):
            _stop(GraphBreak.OPTION(f"axis {axis!r} of lanes"))
        return normalize_axis_index(int(axis), self.ndim) + self.hidden

    def _on_this_way(self) -> Any:
        """Return the chunk, with ones in lanes that the function goes another way for."""
        found: Any = self
        for condition, answer in self.fork.way:
            found = np.where(condition if answer else ~condition, found, self.dtype.type(1))
        return found.whole

    def _results(self, found: Any) -> Any:
        if isinstance(found, tuple):
            return tuple(map(self._like, found))
        return self._like(found)

    # Methods ------------------------------------------------------------------------------

    @property
    def T(self) -> Any:
        """The lane with its axes reversed."""
        return np.transpose(self)

    @property
    def real(self) -> Any:
        """The real parts."""
        return self._like(self.whole.real)

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        return self._like(self.whole.imag)

    def __getitem__(self, index: Any) -> Any:
        return self._like(self.whole[self._index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._spread_for(index, value)
        if type(index) is Lane:
            if index.dtype != bool or index.shape != self.shape or np.ndim(value) > self.ndim:
                _stop(GraphBreak.INDEX("assigns to elements of lanes that lanes choose"))
            mask, chosen = self._aligned((index, value))
            if isinstance(chosen, LazyChunk):
                self.whole[...] = np.where(mask, chosen.astype(self.dtype), self.whole)
            elif np.ndim(chosen) == 0:
                self.whole[mask] = chosen
            else:
                _stop(GraphBreak.INDEX("assigns as many numbers as a mask chooses of a lane"))
            return
        places = self._index(index)
        ndim = np.broadcast_to(np.zeros(()), self.shape)[index].ndim
        if np.ndim(value) > ndim:
            _stop(GraphBreak.INDEX("assigns an array of more axes than there are in lanes"))
        self.whole[places] = self._with_axes(ndim, value)

    def _spread_for(self, *values: Any) -> None:
        """Have elements of its own in each lane, where those of a value are to be written."""
        hidden = hidden_of((self, *values))
        if hidden == self.whole.shape[: self.hidden]:
            return
        if not self.whole._fresh or self.whole._place or any(part() for part in self.whole._shown):
            _stop(GraphBreak.OWN_CHANGES("changes an array of one lane that is seen elsewhere"))
        self.whole = np.copy(np.broadcast_to(self.whole, (*hidden, *self.shape)))

    def _index(self, index: Any) -> tuple[Any, ...]:
        """Return the index into the chunk for one into a lane."""
        given = index if type(index) is tuple else (index,)
        basic = [each is None or each is ... or type(each) is slice for each in given]
        integers = [is_integer(each) for each in given]
        arrays = [type(each) in (np.ndarray, list) for each in given]
        known = [sum(each) for each in zip(basic, integers, arrays, strict=True)]
        if not all(known) or sum(arrays) > 1 or (any(arrays) and any(integers)):
            _stop(GraphBreak.INDEX("an index of lanes that lanes decide, or of several arrays"))
        return *(slice(None),) * self.hidden, *given

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _METHODS:
            return partial(getattr(np, name), self)
        return _stop(GraphBreak.NO_METHOD(f"asks a lane for .{name}"))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Return the lane in another dtype."""
        return self._like(self.whole.astype(dtype, copy=copy))

    def copy(self) -> Any:
        """Return a copy."""
        return self._like(self.whole.copy())

    def reshape(self, *shape: Any) -> Any:
        """Return the lane in another shape."""
        lengths = shape[0] if len(shape) == 1 else shape
        like = np.broadcast_to(np.zeros(()), self.shape).reshape(lengths)
        return self._like(self.whole.reshape(*self.whole.shape[: self.hidden], *like.shape))

    def ravel(self, order: str = "C") -> Any:
        """Return the lane with one axis."""
        if order != "C" and self.ndim > 1:
            _stop(GraphBreak.OPTION("orders elements of lanes by memory"))
        return self.reshape(-1)

    def flatten(self) -> Any:
        """Return a copy with one axis."""
        return self.reshape(-1).copy()

    def __pow__(self, other: Any) -> Any:
        if self.ndim and type(other) in (int, float):
            return self._like(self.whole**other)
        return np.power(self, other)

    def __mul__(self, other: Any) -> Any:
        return super().__mul__(self._operand(other))

    def __rmul__(self, other: Any) -> Any:
        return super().__rmul__(self._operand(other))

    def __eq__(self, other: Any) -> Any:
        return super().__eq__(self._operand(other))

    def __ne__(self, other: Any) -> Any:
        return super().__ne__(self._operand(other))

    def _operand(self, other: Any) -> Any:
        """Return an operand with which NumPy computes, and not Python."""
        if not self.ndim and not isinstance(other, _NUMBERS):
            _stop(GraphBreak.OWN_DECIDES("compares a lane's number with no number"))
        return other

    # What lanes decide --------------------------------------------------------------------

    def __bool__(self) -> bool:
        if self.size != 1 or self.dtype.kind not in "biuf":
            _stop(GraphBreak.OWN_DECIDES("decides by a lane of several elements"))
        asked = self if self.dtype == bool else self != 0
        whole = asked.whole
        if not has_numpys_bits(whole._recorder, whole._node):
            told = "decides by a number that kernels may round in another way"
            _stop(GraphBreak.OWN_DECIDES(told))
        return self.fork.truth(asked)

    def __iter__(self) -> Any:
        recorder = self.whole._recorder
        recorder.go_through(len(self))
        return map(self.__getitem__, range(len(self)))

    def _decides(self, *args: Any) -> Any:
        _stop(GraphBreak.OWN_DECIDES("makes a number of Python's of a lane's"))

    __int__ = __float__ = __complex__ = __index__ = __str__ = __format__ = __round__ = _decides
    __contains__ = __repr__ = __reduce__ = _decides


_NUMBERS = Lane | LazyChunk | int | float | np.number | np.bool_ | np.ndarray
DEFERRED.add(Lane)


# Rules ------------------------------------------------------------------------------------


def _of_elements(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A call that computes each element of the operands there, which broadcast."""
    if function is np.where and len(args) != 3:
        _stop(GraphBreak.INDEX("places in lanes, of which each lane has another number"))
    args, kwargs = lane._aligned((args, kwargs))
    return lane._results(function(*args, **kwargs))


def _like_lane(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A call that makes an array like a lane, of numbers."""
    if args[0] is not lane or "shape" in kwargs or lanes_in((args[1:], kwargs)):
        _stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes with options"))
    return lane._like(function(lane.whole, *args[1:], **kwargs))


def _of_one(place: int, lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A call that computes each element of one of its arguments by itself."""
    given = [*args]
    if len(given) <= place or given[place] is not lane:
        _stop(GraphBreak.NO_KERNEL(f"calls {function.__name__} of lanes in another argument"))
    given[place] = lane.whole
    if lanes_in((given, kwargs)):
        _stop(GraphBreak.NO_KERNEL(f"calls {function.__name__} with several arguments of lanes"))
    return lane._like(function(*given, **kwargs))


def _along(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A call that does the same at each place of the axes that it does not go along."""
    bound = _bound(lane, function, args, kwargs)
    given = bound.arguments
    axis = given.get("axis", bound.signature.parameters["axis"].default)
    if axis is None and lane.ndim == 1:
        axis = -1
    if axis is None and function not in _REDUCTIONS:
        _stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes of several axes"))
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
        _stop(GraphBreak.NO_KERNEL(f"calls {function.__name__} with several arguments of lanes"))
    return bound


def lanes_in(structure: Any) -> bool:
    """Return whether there are lanes in a structure."""
    return any(type(each) is Lane for each in items(structure))


def _joined(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A call that joins lanes and arrays along one of their axes."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    axis, arrays = given.pop("axis", 0), given.pop(next(iter(given)))
    if given or type(arrays) not in (list, tuple) or not is_integer(axis):
        _stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes with options"))
    ndim = np.ndim(arrays[0]) + (function is np.stack)
    axis = normalize_axis_index(int(axis), ndim) + lane.hidden
    hidden = hidden_of(arrays)
    return lane._like(function([spread(each, hidden) for each in arrays], axis=axis))


def hidden_of(structure: Any) -> tuple[int, ...]:
    """Return the lengths of the axes of which each place has a lane, of lanes in a structure."""
    lanes = [each for each in items(structure) if type(each) is Lane]
    return np.broadcast_shapes(*(each.whole.shape[: each.hidden] for each in lanes))


def spread(value: Any, hidden: tuple[int, ...]) -> Any:
    """Return a lane, or a value of all lanes, as an array of all lanes.

    Parameters
    ----------
    value
        A lane, an array or a number.
    hidden
        Lengths of the axes of which each place has a lane.
    """
    if type(value) is not Lane:
        return np.broadcast_to(value, (*hidden, *np.shape(value)))
    whole, shape = value.whole, (*hidden, *value.shape)
    return whole if whole.shape == shape else np.broadcast_to(whole, shape)


def _arranged(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A view that keeps the order of elements, as NumPy makes it of one lane."""
    bound = _bound(lane, function, args, kwargs)
    bound.arguments[next(iter(bound.arguments))] = np.arange(lane.size).reshape(lane.shape)
    found = function(*bound.args, **bound.kwargs)
    if not np.array_equal(found.ravel(), np.arange(lane.size)):
        _stop(GraphBreak.OPTION(f"calls {function.__name__} of lanes in another order"))
    return lane._like(lane.whole.reshape(*lane.whole.shape[: lane.hidden], *found.shape))


def _transposed(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A lane with its axes in another order."""
    axes = _bound(lane, function, args, kwargs).arguments.get("axes")
    order = lane._axes(tuple(range(lane.ndim)[::-1] if axes is None else axes))
    return lane._like(np.transpose(lane.whole, (*range(lane.hidden), *order)))


def _product(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """A sum of products of two vectors."""
    del lane
    if kwargs or len(args) != 2 or any(np.ndim(each) != 1 for each in args):
        _stop(GraphBreak.NO_KERNEL(f"calls {function.__name__} of lanes of several axes"))
    found = args[0] * args[1]
    if found.dtype.char not in "fd":
        _stop(GraphBreak.DTYPE(f"calls {function.__name__} of lanes of {found.dtype}"))
    return np.sum(found)


def _windows(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Windows along the only axis."""
    given = _bound(lane, function, args, kwargs).arguments
    if lane.ndim != 1 or given.keys() > {"x", "window_shape", "axis"}:
        _stop(GraphBreak.OPTION("windows of lanes of several axes"))
    return lane._like(function(lane.whole, given["window_shape"], axis=lane.whole.ndim - 1))


def _fitted(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Polynomials, of which NumPy fits as many as there are columns."""
    if len(args) != 3 or kwargs or args[1] is not lane or lane.ndim != 1 or lanes_in(args[::2]):
        _stop(GraphBreak.OPTION("fits polynomials to lanes with options"))
    hidden = lane.whole.shape[: lane.hidden]
    columns = lane.whole.reshape(-1, lane.size).T
    found = function(args[0], columns, args[2])
    return lane._like(found.T.reshape(*hidden, found.shape[0]))


def _asked(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """What is known of a lane by its dtype and shape."""
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

RULES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((*_REDUCTIONS, *_ALONG), _along),
    **dict.fromkeys(_ELEMENTS, _of_elements),
    **dict.fromkeys(_LIKE, _like_lane),
    **dict.fromkeys(_ASKING, _asked),
    **dict.fromkeys(_ARRANGING, _arranged),
    **dict.fromkeys((np.concatenate, np.stack), _joined),
    **dict.fromkeys((np.dot, np.inner, np.vdot), _product),
    np.digitize: partial(_of_one, 0),
    np.interp: partial(_of_one, 0),
    np.isin: partial(_of_one, 0),
    np.searchsorted: partial(_of_one, 1),
    np.transpose: _transposed,
    sliding_window_view: _windows,
    np.polyfit: _fitted,
}
"""By a function of NumPy's, what makes its call for all lanes."""

_METHODS = frozenset(
    each.__name__
    for each in (*_REDUCTIONS, *_ALONG, np.clip, np.dot, np.round, np.squeeze)
    if hasattr(np.ndarray, each.__name__)
) - {"partition", "sort"}
"""Methods that are as functions are of their name."""


# Functions of lanes -----------------------------------------------------------------------


def array_of_lanes(value: Any, dtype: Any = None, copy: bool = True) -> Any:
    """Return what `numpy.array` makes of a lane, or of a list of numbers of lanes.

    Parameters
    ----------
    value
        The lane, or the list.
    dtype
        Of the array, if another one is wanted.
    copy
        Whether it is to be a new one.
    """
    if type(value) is Lane:
        if not value.ndim:
            _stop(GraphBreak.VALUES("makes an array without axes of a lane's number"))
        return value.astype(value.dtype if dtype is None else dtype, copy=copy)
    dtypes = {np.dtype(float) if type(each) is float else np.result_type(each) for each in value}
    if len(dtypes) > 1 or any(np.ndim(each) for each in value):
        _stop(GraphBreak.VALUES("makes an array of lanes that are not alike"))
    found = np.stack(value)
    return found if dtype is None else found.astype(dtype, copy=False)


def like_lane(lane: Lane) -> Any:
    """Return an array, or a scalar of NumPy's, of the dtype and the shape of a lane."""
    return np.broadcast_to(np.zeros((), lane.dtype), lane.shape)[()]


def filled(recorder: Recorder, number: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return a new array of one number, for a function of the user's: as a lane to one of lanes."""
    fork = recorder.lanes
    lengths = shape if fork is None else (*(1,) * fork.hidden, *shape)
    found = recorder.call(recorder.device.full, (lengths, number, dtype), {}, copies=True)
    whole = LazyChunk(recorder, found, fresh=True)
    return whole if fork is None else Lane(whole, fork.hidden, fork)


def every_lane(recorder: Recorder, hidden: int, function: Callable[[Fork], Any]) -> list[Any]:
    """Return what a function of lanes gives on each of its ways, with the conditions on it.

    Parameters
    ----------
    recorder
        Of the recording.
    hidden
        How many axes there are of which each place has a lane.
    function
        Is called with what its lanes are to have.
    """
    if recorder.lanes is not None:
        _stop(GraphBreak.OWN_CALLS("calls functions of lanes in one of lanes"))
    # What it calls of its lanes are its own calls, none of those of what calls it.
    depth, followed = recorder.depth, recorder.followed
    recorder.depth, recorder.followed = 0, None
    try:
        recorder.lanes = fork = Fork(hidden)
        recorder.spared += 1
        found = fork.ways(partial(function, fork))
        if len(found) > 1:
            if enforced():
                _stop(GraphBreak.OWN_DECIDES("decides by lanes, whose errors numpy.errstate raises"))
            with np.errstate(all="ignore"):
                recorder.lanes = fork = Fork(hidden)
                found = fork.ways(partial(function, fork))
        return found
    finally:
        recorder.depth, recorder.followed, recorder.lanes = depth, followed, None


def _joined_ways(ways: list[Any], depth: int = 0) -> Any:
    """Return for each lane what the way gives that it goes."""
    if len(ways) == 1:
        return ways[0][1]
    condition = ways[0][0][depth][0]
    sides = [_joined_ways([w for w in ways if w[0][depth][1] is side], depth + 1)
             for side in (True, False)]  # fmt: skip
    return np.where(condition, *sides)


def result_of(ways: list[Any], hidden: tuple[int, ...], dtype: Any = None,
              ndim: int | None = None) -> LazyChunk:  # fmt: skip
    """Return an array of what a function gives for its lanes.

    Parameters
    ----------
    ways
        What it gives on each way.
    hidden
        Lengths of the axes of which each place has a lane.
    dtype
        Of the result, if that is known: others are converted. NumPy goes by the first lane if not.
    ndim
        How many axes a lane of it has, if that is known.
    """
    ways = [(way, array_of_lanes(v) if type(v) in (list, tuple) else v) for way, v in ways]
    if len({(np.shape(v), dtype or np.result_type(_array(v))) for _, v in ways}) > 1:
        _stop(GraphBreak.OWN_DECIDES("gives for some lanes what it does not give for others"))
    if ndim is not None and np.ndim(ways[0][1]) != ndim:
        _stop(GraphBreak.OWN_DECIDES("gives results of other shapes than are declared"))
    if dtype is not None:
        ways = [(way, _converted(value, dtype)) for way, value in ways]
    found = _joined_ways(ways)
    if type(found) is not Lane:
        _stop(GraphBreak.NO_ARRAY("gives what does not depend on its lanes"))
    whole = spread(found, hidden)
    return whole if was_own(whole) else np.copy(whole)


def _array(value: Any) -> Any:
    return value if hasattr(value, "dtype") else np.asarray(value)


def _converted(value: Any, dtype: np.dtype) -> Any:
    """Return a result in the dtype of all; what NumPy may refuse to convert ends the recording."""
    own = _array(value).dtype
    if not np.can_cast(own, dtype, "same_kind") or own.kind not in "biuf":
        _stop(GraphBreak.DTYPE(f"gives {own} for {dtype}"))
    return value if own == dtype else _array(value).astype(dtype)


@records(np.apply_along_axis, pure=False)
def _apply_along_axis(recorder: Recorder, func1d: Any, axis: Any, arr: Any, *args: Any,
                      **kwargs: Any) -> Any:  # fmt: skip
    if not recorder.closed or not isinstance(arr, LazyChunk):
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a function of lanes that was not examined")
    if arr.ndim < 2 or not arr.size or not is_integer(axis):
        _stop(GraphBreak.NO_ARRAY("a function of lanes of which there are none"))
    axis = normalize_axis_index(int(axis), arr.ndim)
    whole = np.moveaxis(arr, axis, -1)
    hidden = whole.shape[:-1]

    def call(fork: Fork) -> Any:
        return func1d(Lane(whole, len(hidden), fork), *args, **kwargs)

    found = result_of(every_lane(recorder, len(hidden), call), hidden)
    count = len(hidden)
    added = range(count, found.ndim)
    return np.transpose(found, (*range(axis), *added, *range(axis, count)))


def each_by(recorder: Recorder, function: Any, signature: str, otypes: str | None,
            chunks: tuple[Any, ...]) -> Any:  # fmt: skip
    """Return what `numpy.vectorize` computes by a function and a signature.

    Parameters
    ----------
    recorder
        Of the recording.
    function
        Gets a lane of each of its arguments.
    signature, otypes
        As `numpy.vectorize` has them.
    chunks
        What it is given.
    """
    inputs, outputs = cores(signature)
    if len(inputs) != len(chunks) or not all(type(c) is LazyChunk for c in chunks):
        _stop(GraphBreak.OPERAND("other arguments than chunks, of which a signature speaks"))
    counts = [c.ndim - len(core) for c, core in zip(chunks, inputs, strict=True)]
    if min(counts) < 0 or not max(counts) or not all(c.size for c in chunks):
        _stop(GraphBreak.NO_ARRAY("a function of lanes of which there are none"))
    lengths: dict[str, set[int]] = {}
    for chunk, core in zip(chunks, inputs, strict=True):
        for name, length in zip(core, chunk.shape[chunk.ndim - len(core) :], strict=True):
            lengths.setdefault(name, set()).add(length)
    if any(len(each) > 1 for each in lengths.values()):
        _stop(GraphBreak.OPERAND("lengths that do not fit the signature"))
    most = max(counts)
    wholes = [c[(None,) * (most - n)] if n < most else c
              for c, n in zip(chunks, counts, strict=True)]  # fmt: skip
    hidden = np.broadcast_shapes(*(w.shape[:most] for w in wholes))

    def call(fork: Fork) -> Any:
        found = function(*(Lane(whole, most, fork) for whole in wholes))
        several = type(found) is tuple
        if several if len(outputs) == 1 else not several or len(found) != len(outputs):
            _stop(GraphBreak.OWN_DECIDES("gives another number of results than are declared"))
        return found if several else (found,)

    ways = every_lane(recorder, most, call)
    made = [
        result_of([(way, found[k]) for way, found in ways], hidden,
                  otypes and np.dtype(otypes[k]), len(core))
        for k, core in enumerate(outputs)
    ]  # fmt: skip
    for found, core in zip(made, outputs, strict=True):
        known = zip(core, found.shape[most:], strict=True)
        if any(length not in lengths.setdefault(name, {length}) for name, length in known):
            _stop(GraphBreak.OWN_DECIDES("gives results of other lengths than are declared"))
    return made[0] if len(made) == 1 else tuple(made)


def cores(signature: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the names of the axes of each argument and of each result.

    Examples
    --------
    >>> from gpusched.record.lanewise import cores
    >>> cores("(t),()->(m)")
    ([['t'], []], [['m']])
    """
    sides = signature.replace(" ", "").split("->")
    found = [[[n for n in each.split(",") if n] for each in re.findall(r"\(([^()]*)\)", side)]
             for side in sides]  # fmt: skip
    return found[0], found[1]
