"""A lane that stands for all lanes of a chunk at once.

It is the chunk, whose first axes a function of lanes does not see. What a call of NumPy's does with
the axes of a lane, it does with those of the chunk; for the axes that are not seen it does the same
at each place. Calls for which that is not known (`gpusched.record.lanerules`) end the recording.

Where a function goes on by whether something is true of its lane, lanes may differ: it runs once
for each way that it can go (`Fork`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from operator import getitem
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.floatingpoint import enforced
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.plan import changed, items
from gpusched.record.assignments import check_number
from gpusched.record.branches import has_numpys_bits
from gpusched.record.chunk import DEFERRED, LazyChunk
from gpusched.record.handlers import is_integer
from gpusched.record.record import Recorder

RULES: dict[Any, Callable[..., Any]] = {}
"""By a function of NumPy's, what makes its call for all lanes: called with one of its lanes, the
function, and what that is given."""

FOREIGN: set[type] = set()
"""Types that record calls of lanes and of what is taken of them (`gpusched.record.picked`)."""

METHODS = frozenset(
    ["all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "cumprod", "cumsum",
     "dot", "max", "mean", "min", "prod", "repeat", "round", "squeeze", "std", "sum", "take", "var"]
)  # fmt: skip
"""Methods that are as NumPy's functions are of their name."""

WAYS = 16
"""Ways that a function may go, at most: a loop that ends by what a lane holds would have any
number."""


class Fork:
    """The ways that a function goes by what is true of its lanes, one after the other.

    Notes
    -----
    Belongs to one recording. From where a way parts from others, operations report nothing: they
    are computed of lanes, too, that go another way.
    """

    def __init__(self, hidden: int, elements: int) -> None:
        self.hidden = hidden
        """How many axes of a chunk its lanes do not have."""
        self.elements = elements
        """Of the largest chunk whose lanes the function is given."""
        self._answers: list[bool] = []
        """What the function is to get, in order."""
        self._asked: list[Any] = []
        self._quiet = ExitStack()

    def truth(self, condition: Any) -> bool:
        """Return whether a condition is taken for true on this way."""
        if not self._asked:
            if enforced():
                stop(GraphBreak.OWN_DECIDES("decides by lanes, whose errors numpy.errstate raises"))
            self._quiet.enter_context(np.errstate(all="ignore"))
        self._asked.append(condition)
        if len(self._asked) > WAYS:
            stop(GraphBreak.OWN_DECIDES(f"decides by lanes more than {WAYS} times"))
        if len(self._asked) > len(self._answers):
            self._answers.append(True)
        return self._answers[len(self._asked) - 1]

    @property
    def way(self) -> list[tuple[Any, bool]]:
        """The conditions that have been asked for on this way, with what they are taken for."""
        return list(zip(self._asked, self._answers, strict=False))

    @property
    def holding(self) -> list[Any]:
        """What is true of the lanes that go this way."""
        return [condition if answer else ~condition for condition, answer in self.way]

    def ways(self, function: Callable[[], Any]) -> list[tuple[list[tuple[Any, bool]], Any]]:
        """Return what a function gives on each way, and the conditions on it with their answers."""
        found = []
        while True:
            self._asked = []
            with self._quiet:
                result = function()
            found.append((self.way, result))
            while self._answers and not self._answers[-1]:
                self._answers.pop()
            if not self._answers:
                return found
            if len(found) == WAYS:
                stop(GraphBreak.OWN_DECIDES(f"goes more than {WAYS} ways by what lanes hold"))
            self._answers[-1] = False


def stop(reason: Reason) -> NoReturn:
    """End the recording."""
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
        if not FOREIGN.isdisjoint(map(type, inputs)):
            return NotImplemented
        out = kwargs.pop("out", None)
        if ufunc is np.matmul and out is None:
            return RULES[np.dot](self, ufunc, inputs, kwargs)
        if ufunc.signature is not None or not kwargs.keys() <= {"dtype", "axis", "keepdims"}:
            stop(GraphBreak.NO_KERNEL(f"calls {ufunc.__name__} of lanes with options"))
        if method in ("reduce", "accumulate") and len(inputs) == 1 and out is None:
            axis = self._axes(kwargs.pop("axis", 0))
            found = getattr(ufunc, method)(self.whole, axis=axis, **kwargs)
        elif method == "__call__" and kwargs.keys() <= {"dtype"}:
            if out is not None and (len(out) != 1 or out[0] is not self or self.ndim):
                return self._updated(ufunc, inputs, kwargs, out)
            found = ufunc(*self._aligned(tuple(map(as_operand, inputs))), **kwargs)
        else:
            stop(GraphBreak.NO_KERNEL(f"calls {ufunc.__name__}.{method} of lanes"))
        return self._results(found)

    def _updated(self, ufunc: np.ufunc, inputs: Any, kwargs: Any, out: Any) -> Any:
        """Write what a ufunc gives to a lane, as operators such as ``+=`` do."""
        target = out[0]
        if len(out) != 1 or type(target) is not Lane or not target.ndim:
            stop(GraphBreak.OWN_ARGUMENTS("writes lanes to something else"))
        inputs = tuple(map(as_operand, inputs))
        target._spread_for(*inputs)
        given = self._aligned((*inputs, target))[:-1]
        ufunc(*given, out=target.whole, **kwargs)
        return target

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not FOREIGN.isdisjoint(types):
            return NotImplemented
        rule = RULES.get(func)
        if rule is None:
            stop(GraphBreak.NO_KERNEL(f"calls {func.__name__} of lanes, which has no rule"))
        return rule(self, func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        stop(GraphBreak.OWN_DECIDES("makes an array of a lane of another library"))

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
            stop(GraphBreak.OPTION(f"gives axis {axis!r} of lanes"))
        return normalize_axis_index(int(axis), self.ndim) + self.hidden

    def _on_this_way(self) -> Any:
        """Return the chunk, with ones in lanes that the function goes another way for."""
        found: Any = self
        for condition in self.fork.holding:
            found = np.where(condition, found, self.dtype.type(1))
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
        if type(index) is Lane and index.dtype == bool:
            return RULES[getitem](self, index)
        found = self._like(self.whole[self._index(index)])
        given = index if type(index) is tuple else (index,)
        number = not found.ndim and all(each is not ... for each in given)
        return found.unchanging() if number else found

    def unchanging(self) -> Any:
        """Return another lane of the same elements, whatever is written to this one: a copy."""
        return self._like(self.whole.unchanging())

    def __setitem__(self, index: Any, value: Any) -> None:
        chosen = type(value) in FOREIGN
        value = value.for_places(index) if chosen else value
        if type(value) is Lane and not value.ndim and (chosen or type(index) is not Lane):
            check_number(value.dtype, self.dtype)
        self._spread_for(index, value)
        if type(index) is Lane:
            many = np.ndim(value) and not chosen
            if index.dtype != bool or index.shape != self.shape or many:
                stop(GraphBreak.INDEX("assigns to elements of lanes that lanes choose"))
            mask, given = self._aligned((index, value))
            if isinstance(given, LazyChunk):
                self.whole[...] = np.where(mask, given.astype(self.dtype), self.whole)
            else:
                self.whole[mask] = given
            return
        places = self._index(index)
        ndim = np.broadcast_to(np.zeros(()), self.shape)[index].ndim
        if np.ndim(value) > ndim:
            stop(GraphBreak.INDEX("assigns an array of more axes than there are in lanes"))
        self.whole[places] = self._with_axes(ndim, value)

    def _spread_for(self, *values: Any) -> None:
        """Have elements of its own in each lane, where those of a value are to be written."""
        hidden = hidden_of((self, *values))
        if hidden == self.whole.shape[: self.hidden]:
            return
        if not self.whole._fresh or self.whole._place or any(part() for part in self.whole._shown):
            stop(GraphBreak.OWN_CHANGES("changes an array of one lane that is seen elsewhere"))
        spread_out: Any = np.copy(np.broadcast_to(self.whole, (*hidden, *self.shape)))
        self.whole = spread_out

    def _index(self, index: Any) -> tuple[Any, ...]:
        """Return the index into the chunk for one into a lane."""
        given = index if type(index) is tuple else (index,)
        basic = [each is None or each is ... or type(each) is slice for each in given]
        integers = [is_integer(each) for each in given]
        arrays = [type(each) in (np.ndarray, list) or _are_integers(each) for each in given]
        known = [sum(each) for each in zip(basic, integers, arrays, strict=True)]
        if not all(known) or sum(arrays) > 1 or (any(arrays) and any(integers)):
            stop(GraphBreak.INDEX("indexes lanes by what lanes decide, or by several arrays"))
        return *(slice(None),) * self.hidden, *given

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in METHODS:
            return partial(getattr(np, name), self)
        return stop(GraphBreak.NO_METHOD(f"asks a lane for .{name}"))

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
            stop(GraphBreak.OPTION("orders elements of lanes by memory"))
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
        if not self.ndim and not isinstance(other, (*_NUMBERS, *FOREIGN)):
            stop(GraphBreak.OWN_DECIDES("compares a lane's number with no number"))
        return other

    # What lanes decide --------------------------------------------------------------------

    def __bool__(self) -> bool:
        if self.size != 1 or self.dtype.kind not in "biuf":
            stop(GraphBreak.OWN_DECIDES("decides by a lane of several elements"))
        asked = self if self.dtype == bool else self != 0
        whole = asked.whole
        if not has_numpys_bits(whole._recorder, whole._node):
            told = "decides by a number that kernels may round in another way"
            stop(GraphBreak.OWN_DECIDES(told))
        return self.fork.truth(asked.reshape(()))

    def __iter__(self) -> Any:
        recorder = self.whole._recorder
        recorder.go_through(len(self))
        return map(self.__getitem__, range(len(self)))

    def _decides(self, *args: Any) -> Any:
        stop(GraphBreak.OWN_DECIDES("makes a number of Python's of a lane's"))

    __int__ = __float__ = __complex__ = __index__ = __str__ = __format__ = __round__ = _decides
    __contains__ = __repr__ = __reduce__ = __hash__ = _decides


def _are_integers(value: Any) -> bool:
    return type(value) is LazyChunk and value.dtype.kind in "iu" and value.ndim == 1


DEFERRED.add(Lane)
_NUMBERS = (Lane, LazyChunk, int, float, np.number, np.bool_, np.ndarray)


def lanes_in(structure: Any) -> bool:
    """Return whether there are lanes, or what is taken of them, in a structure."""
    return any(type(each) is Lane or type(each) in FOREIGN for each in items(structure))


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
            stop(GraphBreak.VALUES("makes an array without axes of a lane's number"))
        return value.astype(value.dtype if dtype is None else dtype, copy=copy)
    dtypes = {np.dtype(float) if type(each) is float else np.result_type(each) for each in value}
    if len(dtypes) > 1 or any(np.ndim(each) for each in value):
        stop(GraphBreak.VALUES("makes an array of lanes that are not alike"))
    found = np.stack(value)
    return found if dtype is None else found.astype(dtype, copy=False)


def as_operand(value: Any) -> Any:
    """Return an operand with axes of its own: of a list, the array that NumPy makes of it."""
    if type(value) not in (list, tuple):
        return value
    return array_of_lanes(value) if lanes_in(value) else np.asarray(value)


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
