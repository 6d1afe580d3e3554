"""Whether calls compute each position along some axes of arrays from that position alone.

Such a call gives for a whole chunk what it gives for the pieces of the chunk, put together. So
tasks of pieces become those of chunks (`gpusched.graph.passes`), and calls without kernels run on
blocks of a chunk (`gpusched.graph.running.division`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dask.array import chunk, reductions
from dask.array.core import concatenate_shaped
from numpy.lib.stride_tricks import sliding_window_view
from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched.adapters.arrays import concatenate2, enforce_dtype
from gpusched.adapters.tasks import Task
from gpusched.dataclass import dataclass
from gpusched.graph.functions.known import is_elementwise_call
from gpusched.graph.functions.partials import applied, is_shown
from gpusched.graph.functions.reductionsteps import are_dask_s, is_of_reductions, steps_after
from gpusched.graph.subgraph import evaluate, key_of_argument, last_task
from gpusched.record.catalogue import has
from gpusched.record.handlers import signature_of

_COMMON = (bool, int, float, complex, np.generic, np.dtype, type, type(None))
_ARRAYS = "__array__", "__array_interface__", "__array_ufunc__"
"""Attributes of what NumPy makes arrays of, or asks what to do with one."""
_BOUNDS = frozenset(["min", "max", "a_min", "a_max"])
"""Options of `numpy.clip` that are operands."""


@dataclass(frozen=True)
class Divided:
    """An array that is a piece, of a larger one or of what could be one."""

    ndim: int
    """How many axes it has."""
    axes: tuple[int, ...]
    """Those along which it is a piece, in the order of the pieces' grid."""

    def aligned(self, ndim: int) -> Divided:
        """Return the same with axes before the others, as many as there are then in all."""
        return Divided(ndim, tuple([axis + ndim - self.ndim for axis in self.axes]))


@dataclass(frozen=True)
class Reduced:
    """What a first step of a reduction leaves of a piece, along all axes along which it is one.

    Steps after it join that with what is left of other pieces, or take what is left of the whole.
    """

    key: Any
    """Of what is reduced."""
    piece: Divided
    """What that is."""


class DependentError(Exception):
    """A call that does not compute each position alone, or is not known to."""


def results(task: Task, given: Mapping[Any, Any], reduces: bool = False) -> dict[Any, Any] | None:
    """Return what a task returns, and each of those fused to it, if positions are independent.

    Parameters
    ----------
    task
        The task.
    given
        Its operands by key: `Divided`, or an array that is the same for all pieces. A shape is one
        as well, of a chunk of one element: `Divided`, or a tuple that is the same for all pieces.
    reduces
        Whether the task may end with what reduces a piece: then it returns `Reduced`.

    Returns
    -------
    dict or None
        By key of the task and of those inside, what it returns; None if one of them may compute a
        position from others.

    Examples
    --------
    >>> import operator
    >>> from gpusched.adapters.tasks import Task, TaskRef
    >>> from gpusched.graph.functions.independence import Divided, results
    >>> halves = Task("y", operator.truediv, TaskRef("x"), 2)
    >>> results(halves, {"x": Divided(2, (1,))})
    {'y': Divided(ndim=2, axes=(1,))}
    >>> totals = Task("y", np.sum, TaskRef("x"), axis=(1,), keepdims=True)
    >>> results(totals, {"x": Divided(2, (1,))}) is None
    True
    >>> results(totals, {"x": Divided(2, (1,))}, reduces=True)
    {'y': Reduced(key='x', piece=Divided(ndim=2, axes=(1,)))}
    """
    found: dict[Any, Any] = {}
    last = last_task(task) if reduces else None

    def call(called: Task, args: list[Any], kwargs: dict[str, Any], key: Any) -> Any:
        if called is last and steps_after(called) and type(args[0]) is Divided:
            (piece,) = args
            if set(piece.axes) <= set(kwargs["axis"]):
                return Reduced(key_of_argument(called.args[0]), piece)
        return result(called.func, args, kwargs)

    if not task.dependencies <= given.keys():
        return None
    try:
        evaluate(task, given, call, made=found)
    except DependentError:
        return None
    return found


def result(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a call returns, if it computes each position of what is `Divided` alone.

    Raises
    ------
    DependentError
        If it does not, or is not known to.

    Examples
    --------
    >>> from gpusched.graph.functions.independence import Divided, result
    >>> result(np.add, [Divided(2, (1,)), Divided(1, (0,))], {})
    Divided(ndim=2, axes=(1,))
    """
    if type(function) is Compose:
        found = result(function.first, args, kwargs)
        for each in function.funcs:
            found = result(each, [found], {})
        return found
    function, given, kwargs = applied(function, args, kwargs)
    if function is enforce_dtype:
        inner, dtype = kwargs.pop("enforce_dtype_function"), kwargs.pop("enforce_dtype")
        return _converted(result(inner, given, kwargs), astype_dtype=dtype)
    operands = operands_of(function, given, kwargs)
    if operands is not None:
        return _elementwise(operands)
    if is_shown(function, given, kwargs):
        return _shown(*given)
    rule = next((rule for each, rule in _FUNCTIONS if each is function), None)
    if rule is None and (has(function, "picks") or is_of_reductions(function)):
        rule = _picked if has(function, "picks") else _reduced
    if rule is None:
        raise DependentError
    try:
        bound = signature_of(rule).bind(*given, **kwargs)
    except TypeError as error:  # The call has other arguments than the rule knows.
        raise DependentError from error
    return rule(*bound.args, **bound.kwargs)


def operands_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """Return what an elementwise call is given, of which some is for each element; None for others.

    Examples
    --------
    >>> from gpusched.graph.functions.independence import operands_of
    >>> operands_of(np.clip, ("x",), {"max": 1}), operands_of(np.add, ("x", 1), {"where": "x"})
    (['x', 1], None)
    """
    options: Any = _BOUNDS if function is np.clip else ()
    if kwargs.keys() - options or not is_elementwise_call(function, len(args)):
        return None
    return [*args, *kwargs.values()]


def is_common(operand: Any) -> bool:
    """Return whether an operand is the same for all elements: a number, a dtype or a function."""
    plain = callable(operand) and not any(hasattr(operand, name) for name in _ARRAYS)
    return plain or isinstance(operand, _COMMON)


def _elementwise(operands: list[Any]) -> Divided:
    arrays = [each for each in operands if type(each) is Divided]
    if not arrays:
        raise DependentError
    found = max(arrays, key=lambda each: each.ndim)
    # NumPy aligns the last axes.
    if any(each.aligned(found.ndim) != found for each in arrays):
        raise DependentError
    rest = (each for each in operands if type(each) is not Divided)
    if not all(is_common(each) or _is_broadcast(each, found) for each in rest):
        raise DependentError
    return found


def _shown(shape: Any) -> Any:
    """Return a chunk of one element: a piece if its shape is one of a piece, or else an array."""
    if type(shape) is Divided:
        return shape
    if type(shape) is not tuple:
        raise DependentError
    return np.broadcast_to(np.zeros(()), shape)


def _is_broadcast(value: Any, along: Divided) -> bool:
    """Return whether a value is an array that is the same at all positions of a divided one."""
    if type(value) is not np.ndarray or value.ndim > along.ndim:
        return False
    missing = along.ndim - value.ndim
    return all(axis < missing or value.shape[axis - missing] == 1 for axis in along.axes)


def _converted(x: Any, *, astype_dtype: Any) -> Divided:
    """Return what is of another dtype, or of the same."""
    # A dtype of subarrays would make further axes.
    if type(x) is not Divided or getattr(astype_dtype, "subdtype", astype_dtype) is not None:
        raise DependentError
    return x


def _reduced(x: Any, *, axis: Any = None, keepdims: Any = False, dtype: Any = None) -> Divided:
    """Return what a step of one of dask's reductions returns, along other axes than the pieces'.

    What it returns may be several arrays of the same shape.
    """
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    if type(x) is not Divided or type(keepdims) is not bool or not _are_others(axes, x):
        raise DependentError
    if keepdims:
        return x
    before = [sum(each < axis for each in axes) for axis in x.axes]
    left = tuple(axis - count for axis, count in zip(x.axes, before, strict=True))
    return Divided(x.ndim - len(axes), left)


def _counted(x: Any, *, axis: Any = None, keepdims: Any = False, **options: Any) -> Divided:
    """Return what a step of dask's means and variances returns of one array."""
    if not are_dask_s(options):
        raise DependentError
    return _reduced(x, axis=axis, keepdims=keepdims)


def _aggregated(pairs: Any, *, axis: Any = None, **options: Any) -> Divided:
    """Return what the last step of means and variances returns of the results of one chunk."""
    return _counted(_joined(pairs, axis), axis=axis, **options)


def _are_others(axes: Sequence[Any], x: Divided) -> bool:
    """Return whether axes are known, and none of those along which an array is a piece."""
    known = all(type(each) is int and 0 <= each < x.ndim for each in axes)
    return known and set(axes).isdisjoint(x.axes)


def _windows(x: Any, window_shape: Any, axis: Any = None) -> Divided:
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    if type(x) is not Divided or not _are_others(axes, x):
        raise DependentError
    return Divided(x.ndim + len(axes), x.axes)


def _joined(arrays: Any, axes: Any = None) -> Divided:
    """Return what `dask.array.core._concatenate2` returns of one array: the array."""
    depth = 0
    while isinstance(arrays, list | tuple) and len(arrays) == 1:
        (arrays,) = arrays
        depth += 1
    # Of deeper lists, NumPy would make further axes.
    deep = depth == (len(axes) if isinstance(axes, list | tuple) else 1)
    if type(arrays) is not Divided or (depth and not deep):
        raise DependentError
    return arrays


def _shaped(arrays: Any, shape: Any) -> Divided:
    """Return arrays joined along other axes than those of the pieces."""
    array = arrays[0] if isinstance(arrays, list) and arrays else None
    if type(array) is not Divided or any(type(e) is not Divided or e != array for e in arrays):
        raise DependentError
    # Of a longer shape, dask would make further axes.
    shape = shape if isinstance(shape, list | tuple) else ()
    if len(shape) != array.ndim or math.prod(shape) != len(arrays):
        raise DependentError
    if any(shape[axis] != 1 for axis in array.axes):
        raise DependentError
    return array


def _picked(x: Any, index: Any) -> Divided:
    """Return a piece along other axes than those along which the array is a piece."""
    if type(x) is not Divided or type(index) is not tuple or len(index) > x.ndim:
        raise DependentError
    slices = all(type(each) is slice for each in index)
    whole = all(axis >= len(index) or index[axis] == slice(None) for axis in x.axes)
    if not slices or not whole:
        raise DependentError
    return x


_FUNCTIONS: tuple[tuple[Any, Callable[..., Divided]], ...] = (
    (chunk.astype, _converted),
    (concatenate2, _joined),
    (concatenate_shaped, _shaped),
    (reductions.mean_agg, _aggregated),
    (reductions.mean_chunk, _counted),
    (reductions.moment_chunk, _counted),
    (reductions.moment_agg, _aggregated),
    (sliding_window_view, _windows),
)
"""What some functions return, which need not be hashable."""
