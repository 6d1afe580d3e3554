"""Elements of each lane that a mask chooses, ``v[~np.isnan(v)]``, and how many there are.

Each lane has another number of them, so that there is no array of them all. They are the elements
at their places in the lane: what computes them one by one is computed at each place, at others of
a one, whose result nobody sees (as `gpusched.record.chosen` does); and what reduces them reduces
the lane, where others are such that they change nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpusched.breaks import GraphBreak
from gpusched.record.chunk import DEFERRED, LazyChunk, compute
from gpusched.record.lane import FOREIGN, RULES, Lane, stop
from gpusched.record.reductions import report_if_any


class PythonNumber:
    """A number of Python's that differs from lane to lane, such as a length, or a truth.

    Parameters
    ----------
    lane
        The numbers, of int64, float64 or bool, as a number of lanes.
    most
        How large integers may be: those beyond int64, which Python has, are not recorded.

    Notes
    -----
    It computes with Python's numbers as these do, and takes the dtype of NumPy's that it meets.
    """

    __slots__ = ("lane", "most")

    def __init__(self, lane: Lane, most: int = 1) -> None:
        self.lane, self.most = lane, most
        if lane.dtype == np.int64 and most > np.iinfo(np.int64).max:
            stop(GraphBreak.DTYPE("computes integers that may be beyond int64"))

    def _with(self, operation: Callable[..., Any], other: Any, swapped: bool = False) -> Any:
        if isinstance(other, Lane | Picked | LazyChunk | np.ndarray | np.generic):
            return NotImplemented
        divides = operation in (operator.truediv, operator.floordiv, operator.mod)
        if divides and (swapped or type(other) is PythonNumber or not other):
            stop(GraphBreak.OWN_DECIDES("divides by a number of Python's that may be zero"))
        truths = operation in _OF_TRUTHS
        given = other._numbers(truths) if type(other) is PythonNumber else other
        own = self._numbers(truths)
        found = operation(given, own) if swapped else operation(own, given)
        if found.dtype != np.int64:
            return PythonNumber(found)
        size = other.most if type(other) is PythonNumber else abs(other)
        multiplies = operation is operator.mul
        return PythonNumber(found, self.most * size if multiplies else self.most + size + 1)

    def _numbers(self, truths: bool = False) -> Any:
        """Return the numbers, of int64 where they are truths, unless these are computed with."""
        return self.lane.astype(int) if self.lane.dtype == bool and not truths else self.lane

    def __neg__(self) -> Any:
        return PythonNumber(-self._numbers(), self.most)

    def __pos__(self) -> Any:
        return PythonNumber(self._numbers(), self.most)

    def __abs__(self) -> Any:
        return PythonNumber(abs(self._numbers()), self.most)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*_beside_each_other(inputs), **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is not np.where or len(args) != 3 or kwargs:
            stop(GraphBreak.NO_KERNEL(f"calls {func.__name__} of numbers of Python's"))
        condition, *sides = args
        return func(*_beside_each_other([condition]), *_beside_each_other(sides))

    def beside(self, dtype: np.dtype | None) -> Lane:
        """Return the numbers as NumPy takes Python's beside others of a dtype."""
        if dtype is None or dtype.kind == "b" or self.lane.dtype in (dtype, bool):
            return self.lane
        if dtype.char in "fd":
            return self.lane.astype(dtype)
        stop(GraphBreak.DTYPE(f"computes with a number of Python's and {dtype}"))

    def for_places(self, index: Any) -> Any:
        """Return what is assigned to places of a lane."""
        del index
        return self.lane

    def __bool__(self) -> bool:
        return bool(self.lane)

    def _stop(self, *args: Any) -> Any:
        stop(GraphBreak.OWN_DECIDES("needs a number of Python's that differs from lane to lane"))

    __int__ = __float__ = __index__ = __str__ = __format__ = __hash__ = __iter__ = _stop
    __round__ = __repr__ = __reduce__ = __pow__ = __rpow__ = __getattr__ = _stop
    __invert__ = __divmod__ = __rdivmod__ = __lshift__ = __rlshift__ = __rshift__ = _stop
    __rrshift__ = __matmul__ = __rmatmul__ = __trunc__ = __floor__ = __ceil__ = _stop


def _beside_each_other(operands: Sequence[Any]) -> list[Any]:
    """Return operands as NumPy takes Python's numbers beside others."""
    others = [each.dtype for each in operands if hasattr(type(each), "dtype")]
    dtype = np.result_type(*others) if others else None
    return [each.beside(dtype) if type(each) is PythonNumber else each for each in operands]


_COMPARING = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_COMBINING = (operator.and_, operator.or_, operator.xor)
_COMPUTING = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
              operator.mod)  # fmt: skip
_OF_TRUTHS = (*_COMPARING, *_COMBINING)
"""What Python does with truths; for others, it takes them for numbers."""


def _operators() -> None:
    for operation in (*_COMPARING, *_COMBINING, *_COMPUTING):
        name = operation.__name__.rstrip("_")

        def method(self: Any, other: Any, operation: Any = operation) -> Any:
            return self._with(operation, other)

        def swapped(self: Any, other: Any, operation: Any = operation) -> Any:
            return self._with(operation, other, swapped=True)

        setattr(PythonNumber, f"__{name}__", method)
        if operation not in _COMPARING:
            setattr(PythonNumber, f"__r{name}__", swapped)


_operators()


class Picked(NDArrayOperatorsMixin):
    """The elements of a lane that a mask chooses.

    Parameters
    ----------
    lane
        Has them at their places.
    mask
        Of the shape of a lane.
    """

    __slots__ = ("lane", "mask")

    def __init__(self, lane: Lane, mask: Lane) -> None:
        self.lane, self.mask = lane, mask

    @property
    def dtype(self) -> np.dtype:
        """Of the elements."""
        return self.lane.dtype

    ndim = 1

    @property
    def size(self) -> PythonNumber:
        """How many there are."""
        found: Any = np.count_nonzero(self.mask, axis=None)
        return PythonNumber(found, self.mask.size)

    @property
    def shape(self) -> tuple[PythonNumber]:
        """The length of their only axis."""
        return (self.size,)

    def for_places(self, index: Any) -> Lane:
        """Return the elements at their places, which the same mask chooses."""
        if type(index) is not Lane or index.whole._node is not self.mask.whole._node:
            stop(GraphBreak.INDEX("assigns elements to places that another mask chooses"))
        return self.instead(1)

    def _at(self, value: Any) -> Any:
        """Return an operand at each place of a lane."""
        if type(value) is PythonNumber:
            return value
        if type(value) is Picked:
            if value.mask.whole._node is not self.mask.whole._node:
                stop(GraphBreak.INDEX("computes with elements that different masks choose"))
            return value.instead(value.dtype.type(1))
        if np.ndim(value):
            stop(GraphBreak.INDEX("computes with elements of lanes, and with an array"))
        return value

    def instead(self, number: Any) -> Lane:
        """Return the lane with a number at the places of other elements."""
        found: Any = np.where(self.mask, self.lane, self.dtype.type(number))
        assert type(found) is Lane
        return found

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if method != "__call__" or ufunc.nout != 1 or kwargs or ufunc.signature is not None:
            stop(GraphBreak.NO_KERNEL(f"calls {ufunc.__name__} of elements of lanes with options"))
        found = ufunc(*map(self._at, inputs))
        if out is None:
            return Picked(found, self.mask)
        if out[0] is not self or not np.can_cast(found.dtype, self.dtype, "same_kind"):
            stop(GraphBreak.OWN_CHANGES("writes elements of lanes to something else"))
        self.lane = found.astype(self.dtype)
        return self

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = _REDUCING.get(func)
        if rule is None or not args or args[0] is not self:
            stop(GraphBreak.NO_KERNEL(f"calls {func.__name__} of elements that masks choose"))
        axis = kwargs.pop("axis", None)
        if axis not in (None, 0, -1):
            stop(GraphBreak.OPTION(f"gives axis {axis!r} of elements that masks choose"))
        return rule(self, *args[1:], **kwargs)

    def __getattr__(self, name: str) -> Any:
        rule = None if name.startswith("__") else _REDUCING.get(getattr(np, name, None))
        if rule is None or not hasattr(np.ndarray, name):
            if name.startswith("__"):
                raise AttributeError(name)
            stop(GraphBreak.NO_METHOD(f"asks elements that masks choose for .{name}"))
        return lambda *args, **kwargs: self.__array_function__(
            getattr(np, name), (), (self, *args), kwargs
        )

    def __pow__(self, other: Any) -> Any:
        if type(other) in (int, float):
            return Picked(self.instead(1) ** other, self.mask)
        return np.power(self, other)

    def astype(self, dtype: Any) -> Any:
        """Return them in another dtype."""
        return Picked(self.instead(1).astype(dtype), self.mask)

    def _stop(self, *args: Any) -> Any:
        stop(GraphBreak.OWN_DECIDES("goes through elements that masks choose of each lane"))

    __len__ = __bool__ = __iter__ = __getitem__ = __setitem__ = __array__ = __contains__ = _stop
    __hash__ = __repr__ = __reduce__ = _stop


def picked(lane: Lane, mask: Lane) -> Picked:
    """Return the elements of a lane that a mask of its shape chooses."""
    if lane.dtype.char not in "fdbhilqBHIL?" or mask.shape != lane.shape:
        stop(GraphBreak.INDEX("takes elements of lanes that a mask of another shape chooses"))
    mask.whole._node  # noqa: B018  as a view of a mask that is computed later would be another one
    return Picked(lane.unchanging(), mask.unchanging())


def length(value: Any) -> Any:
    """Do what `len` does, of anything that a function of lanes may have."""
    return value.size if type(value) is Picked else len(value)


# Reductions -------------------------------------------------------------------------------


def _sum(values: Picked) -> Any:
    return np.sum(values.instead(0), axis=None)


def _prod(values: Picked) -> Any:
    return np.prod(values.instead(1), axis=None)


def _mean(values: Picked) -> Any:
    """NumPy's mean: the sum by how many there are; of none, NumPy repeats the calls and warns."""
    kept = values if values.dtype.kind == "f" else values.astype(float)
    total = _sum(kept)
    return total / values.size.lane.astype(total.dtype)


def _var(values: Picked, *, ddof: int = 0) -> Any:
    """NumPy's variance, of distances from the mean."""
    if type(ddof) is not int:
        stop(GraphBreak.OPTION("asks for a variance with other options than ddof"))
    distances = values - _mean(values)
    count = np.maximum(values.size.lane - ddof, 0)
    total = _sum(distances * distances)
    return total / count.astype(total.dtype)


def _std(values: Picked, *, ddof: int = 0) -> Any:
    return np.sqrt(_var(values, ddof=ddof))


def _extreme(name: str, values: Picked) -> Any:
    """Return the least or the largest one; of no elements, NumPy repeats the calls, and raises."""
    limits = np.finfo(values.dtype) if values.dtype.kind == "f" else None
    if limits is None and values.dtype.kind not in "iu":
        stop(GraphBreak.DTYPE(f"asks for extremes of {values.dtype} that masks choose"))
    last = np.inf if limits is not None else np.iinfo(values.dtype).max
    first = -np.inf if limits is not None else np.iinfo(values.dtype).min
    found = getattr(np, name)(values.instead(last if name == "min" else first), axis=None)
    return _unless_empty(values, found)


def _unless_empty(values: Picked, found: Lane) -> Any:
    """Return a result; where a lane has no elements on this way, NumPy repeats the calls."""
    empty: Any = ~np.any(values.mask, axis=None)
    for condition in found.fork.holding:
        empty = empty & condition
    checked = compute(found.whole._recorder, report_if_any, (found.whole, empty.whole), {})
    return found._like(checked)


def _ordered(function: Any, values: Picked, *args: Any) -> Any:
    """Return ranks, as of a lane without NaN; of elements that are NaN, it is NaN."""
    if values.dtype.kind != "f":
        stop(GraphBreak.DTYPE(f"asks for quantiles of {values.dtype} that masks choose"))
    if any(isinstance(each, Lane | Picked | PythonNumber | str) or np.ndim(each) for each in args):
        stop(GraphBreak.OPTION("asks for several quantiles of elements that masks choose"))
    found = function(values.instead(np.nan), *args, axis=None)
    unknown = np.any(np.isnan(values.instead(1)), axis=None)
    return _unless_empty(values, np.where(unknown, values.dtype.type(np.nan), found))


_REDUCING: dict[Any, Callable[..., Any]] = {
    np.sum: _sum,
    np.prod: _prod,
    np.mean: _mean,
    np.var: _var,
    np.std: _std,
    np.min: lambda values: _extreme("min", values),
    np.max: lambda values: _extreme("max", values),
    np.ptp: lambda values: _extreme("max", values) - _extreme("min", values),
    np.any: lambda values: np.any(values.instead(0), axis=None),
    np.all: lambda values: np.all(values.instead(1), axis=None),
    np.count_nonzero: lambda values: np.count_nonzero(values.instead(0), axis=None),
    np.median: lambda values: _ordered(np.nanmedian, values),
    np.quantile: lambda values, q: _ordered(np.nanquantile, values, q),
    np.percentile: lambda values, q: _ordered(np.nanpercentile, values, q),
    np.size: lambda values: values.size,
}
"""What reduces elements that masks choose."""

RULES[operator.getitem] = picked
DEFERRED.update((Picked, PythonNumber))
FOREIGN.update((Picked, PythonNumber))
