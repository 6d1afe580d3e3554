"""NumPy functions (not ufuncs) and array methods that are recorded, in terms of nodes.

The parameters of each are the ones that it honours (`gpusched.record.handlers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import SUPPORTED
from gpusched.emit.operations import CLIP
from gpusched.plan.expression import Apply, Leaf, Node, Scalar, UnfusibleError, postorder
from gpusched.plan.layout import falls
from gpusched.record import parts
from gpusched.record.chosen import chosen, where_true
from gpusched.record.chunk import (
    LazyChunk,
    compute,
    is_scalar,
    node_operand,
    operand,
    parts_within,
    viewed,
)
from gpusched.record.compound import Box, Compound
from gpusched.record.handlers import is_integer, records, records_method
from gpusched.record.record import PYTHON_SCALARS, Recorder
from gpusched.record.ufuncs import complex_chunk, elementwise, parts_of
from gpusched.record.views import copied, leaf_view

_MISSING = np._NoValue


# Elementwise ----------------------------------------------------------------------------


@records(np.astype)
def _astype(recorder: Recorder, x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    if not isinstance(x, LazyChunk):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(x).__name__}")
    return x.astype(dtype, copy=copy)


@records(np.where)
def _where(recorder: Recorder, condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return where_true(recorder, condition)
    if x is None or y is None:
        raise UnfusibleError(GraphBreak.OPERAND, "one choice of two")
    test = recorder.cast(operand(recorder, condition), np.dtype(bool))
    operands = [v if type(v) is complex else operand(recorder, v) for v in (x, y)]
    kinds = [o.dtype if isinstance(o, Node) else o for o in operands]
    for o in operands:
        if type(o) is int and not isinstance(o, bool):
            np.result_type(*kinds)
    try:
        dtype = np.result_type(*kinds)
    except OverflowError as error:
        raise UnfusibleError(GraphBreak.OPERAND, str(error)) from error
    arguments = tuple(recorder.cast(o, dtype) for o in operands)
    if dtype.kind == "c":
        pairs = (parts_of(recorder, node) for node in arguments)
        chosen = LazyChunk(recorder, test)
        found = tuple(np.where(chosen, *each) for each in zip(*pairs, strict=True))
        return LazyChunk(recorder, complex_chunk(recorder, found)._node, fresh=True)
    node = recorder.apply("where", (test, *arguments), dtype)
    return LazyChunk(recorder, node, fresh=True)


@records(np.select)
def _select(recorder: Recorder, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """As NumPy does, but that it copies the choices one over the other, the first one last."""
    lists = type(condlist) in (list, tuple) and type(choicelist) in (list, tuple)
    if not lists or not 0 < len(condlist) == len(choicelist):
        raise UnfusibleError(GraphBreak.OPERAND, "conditions or choices that NumPy refuses")
    if not all(type(c) in (LazyChunk, np.ndarray) and c.dtype == bool for c in condlist):
        raise UnfusibleError(GraphBreak.OPERAND, "a condition that is not an array of truth values")
    values = (*choicelist, default)
    if not all(type(v) in (LazyChunk, np.ndarray, bool, int, float, complex) for v in values):
        raise UnfusibleError(GraphBreak.OPERAND, "a choice that is not an array or a number")
    try:
        # Numbers of Python's take the dtype of the others.
        dtype = np.result_type(*(getattr(v, "dtype", v) for v in values))
    except (TypeError, OverflowError) as error:
        raise UnfusibleError(GraphBreak.OPERAND, str(error)) from error
    if dtype.kind not in "biufc":
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {dtype}")
    # NumPy has made arrays of them, the largest as objects, which it casts: some raise or wrap.
    integers = [v for v in choicelist if type(v) is int]
    if not all(np.can_cast(np.asarray(v).dtype, dtype, "same_kind") for v in integers) or not all(
        _fits(v, dtype) for v in (*integers, default) if type(v) is int
    ):
        raise UnfusibleError(GraphBreak.OPERAND, f"Python integer among choices of {dtype}")
    number = not isinstance(default, LazyChunk | np.ndarray)
    found = np.asarray(default, dtype)[()] if number else default.astype(dtype)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = np.where(condition, choice, found)
    return found


@records(np.piecewise)
def _piecewise(recorder: Recorder, x: Any, condlist: Any, funclist: Any) -> Any:
    """As NumPy does: each is assigned where its condition holds, the last one last."""
    if not isinstance(x, LazyChunk) or not x.shape or x.dtype.kind not in "biuf":
        raise UnfusibleError(GraphBreak.DTYPE, "no array of real numbers")
    if not {type(condlist), type(funclist)} <= {list, tuple}:
        raise UnfusibleError(GraphBreak.OPERAND, "conditions or choices that are not in lists")
    if not all(isinstance(c, LazyChunk) and c.dtype == bool for c in condlist) or not all(
        c.shape == x.shape for c in condlist
    ):
        raise UnfusibleError(GraphBreak.OPERAND, "a condition that is not of each element")
    if not all(
        type(v) in (bool, int, float) or (callable(v) and recorder.closed) for v in funclist
    ):
        raise UnfusibleError(GraphBreak.OPERAND, "a function of the elements that are chosen")
    conditions = [*condlist]
    if conditions and len(funclist) == len(conditions) + 1:
        conditions.append(~reduce(np.logical_or, conditions))
    if not conditions or len(funclist) != len(conditions):
        raise UnfusibleError(GraphBreak.OPERAND, "not as many conditions as choices")
    found: Any = np.zeros_like(x)
    for condition, value in zip(conditions, funclist, strict=True):
        if callable(value):
            value = value(x[condition])
            if chosen(value) is None and type(value) not in PYTHON_SCALARS:
                # NumPy does not call it for no elements.
                told = "calls piecewise with a function of several elements"
                recorder.stop(GraphBreak.VALUES(told))
        found[condition] = value
    return found


def _fits(value: int, dtype: np.dtype) -> bool:
    return dtype.kind not in "iu" or np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


@records(np.clip)
def _clip(recorder: Recorder, a: Any, a_min: Any = _MISSING, a_max: Any = _MISSING, *,
          min: Any = _MISSING, max: Any = _MISSING) -> Any:  # fmt: skip
    one = (a_min is _MISSING) is not (a_max is _MISSING)
    if one or not (a_min is a_max is _MISSING or min is max is _MISSING):
        raise UnfusibleError(GraphBreak.OPTION, "bounds that NumPy refuses")
    low = min if a_min is _MISSING else a_min
    high = max if a_max is _MISSING else a_max
    low, high = (None if v is _MISSING else v for v in (low, high))
    if low is None and high is None:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "clip without bounds")
    if low is None:
        return elementwise(recorder, np.minimum, (a, high))
    if high is None:
        return elementwise(recorder, np.maximum, (a, low))
    return elementwise(recorder, CLIP, (a, low, high))


@records(np.round, np.around, method="round")
def _round(recorder: Recorder, a: Any, decimals: int = 0) -> Any:
    node = node_operand(recorder, a)
    if node.dtype.kind not in "fc" or type(decimals) is not int:
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {node.dtype}")
    if decimals == 0:
        return np.rint(a)
    if node.dtype.kind == "c":
        return _of_parts(recorder, node, lambda part: _round(recorder, part, decimals))
    # NumPy's own formula (numpy/_core/src/multiarray/calculation.c, PyArray_Round).
    factor = _power_of_ten(abs(decimals))
    first, second = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
    return second(np.rint(first(a, factor)), factor)


def _power_of_ten(exponent: int) -> float:
    """Return a power of ten as NumPy computes it, which is not exact."""
    found = 10.0 ** min(exponent, 8)
    for _ in range(min(exponent, 400) - 8):
        found *= 10.0
    return found


def complex_parts(val: Any) -> tuple[LazyChunk, LazyChunk]:
    """Return the parts of a complex chunk, which are views of it in NumPy."""
    if not isinstance(val, LazyChunk) or val.dtype.kind != "c":
        raise UnfusibleError(GraphBreak.DTYPE, "no complex numbers")
    val.lend()
    return parts_of(val._recorder, val._node, parts.apart)


def _of_parts(recorder: Recorder, node: Node, function: Callable[[LazyChunk], Any]) -> LazyChunk:
    """Return complex numbers whose parts are what a function makes of a node's parts."""
    return complex_chunk(recorder, tuple(map(function, parts_of(recorder, node))))


def _part(recorder: Recorder, val: Any, number: int) -> LazyChunk:
    """Return one of the parts: of an array that exists, the view that others may write to."""
    found = complex_parts(val)[number]
    if not isinstance(val._node, Leaf) or not val.shape:
        return found
    view = (np.real, np.imag)[number]
    return LazyChunk(recorder, leaf_view(recorder, val._node.register, view))


@records(np.real)
def _real(recorder: Recorder, val: Any) -> Any:
    return _part(recorder, val, 0) if val.dtype.kind == "c" else val


@records(np.imag)
def _imag(recorder: Recorder, val: Any) -> Any:
    return _part(recorder, val, 1)


@records(np.angle)
def _angle(recorder: Recorder, z: Any, deg: Any = False) -> Any:
    if type(deg) not in (bool, np.bool):
        raise UnfusibleError(GraphBreak.OPTION, f"option deg {deg!r}")
    real = isinstance(z, LazyChunk) and z.dtype.kind != "c"
    first, second = (z, 0) if real else complex_parts(z)
    found = np.arctan2(second, first)
    return found * (180 / math.pi) if deg else found


@records(np.real_if_close)
def _real_if_close(recorder: Recorder, a: Any) -> Any:
    if a.dtype.kind == "c":
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a result whose dtype depends on values")
    return _array(a)


@records(np.copy)
def _copy(recorder: Recorder, a: Any) -> Any:
    made = recorder.made_leaf(recorder.register(node_operand(recorder, a)), np.copy, copies=True)
    return LazyChunk(recorder, made, fresh=True)


@records(np.nan_to_num)
def _nan_to_num(recorder: Recorder, x: Any, *, nan: Any = 0.0, posinf: Any = None,
                neginf: Any = None) -> Any:  # fmt: skip
    node = node_operand(recorder, x)
    given = {"nan": nan, "posinf": posinf, "neginf": neginf}
    if any(map(np.iscomplexobj, given.values())):
        raise UnfusibleError(GraphBreak.OPTION, "complex numbers, where NumPy takes real ones")
    if node.dtype.kind == "c":
        return _of_parts(recorder, node, lambda part: _nan_to_num(recorder, part, **given))
    if node.dtype.kind != "f":
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {node.dtype}")
    limits = np.finfo(node.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    bounded = np.where(x == np.inf, high, np.where(x == -np.inf, low, x))
    found = np.where(np.isnan(x), nan, bounded).astype(node.dtype)
    return LazyChunk(recorder, found._node, scalar=not found.shape, fresh=True)


@records(np.isclose)
def _isclose(recorder: Recorder, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8,
             equal_nan: bool = False) -> Any:  # fmt: skip
    if not all(type(each) in (int, float) for each in (rtol, atol)):
        raise UnfusibleError(GraphBreak.OPTION, "tolerances that are no numbers")
    if not all(isinstance(v, LazyChunk | np.ndarray | int | float) for v in (a, b)):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(b).__name__}")
    if isinstance(b, LazyChunk | np.ndarray):
        b = b.astype(np.result_type(b, 1.0))
    elif isinstance(b, int):
        b = float(b)
    close = (abs(a - b) <= (atol + rtol * abs(b))) & np.isfinite(b) | (a == b)
    return close | (np.isnan(a) & np.isnan(b)) if equal_nan else close


@records(np.diff)
def _diff(recorder: Recorder, a: Any, n: int = 1, axis: int = -1) -> Any:
    if type(n) is not int or n < 1:
        raise UnfusibleError(GraphBreak.OPTION, "differences of another order than one or more")
    along = (slice(None),) * normalize_axis_index(axis, _array(a).ndim)
    less = np.not_equal if a.dtype == bool else np.subtract
    for _ in range(n):
        a = less(a[*along, 1:], a[*along, :-1])
    return a


# Views ----------------------------------------------------------------------------------


def _array(value: Any) -> LazyChunk:
    """Return a lazy chunk with axes; `UnfusibleError` without: then NumPy says what it gives."""
    if not isinstance(value, LazyChunk) or not value.shape:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a view of an array without axes")
    return value


def _viewed(function: Callable[..., Any], method: str = "") -> None:
    @records(function, method=method)
    def handler(recorder: Recorder, a: Any, *args: Any, **kwargs: Any) -> Any:
        # Plans call it again, when the program may have changed its own lists.
        given = [_kept(each) for each in args]
        options = {name: _kept(each) for name, each in kwargs.items()}
        return viewed(_array(a), lambda array: function(array, *given, **options))


def _kept(value: Any) -> Any:
    return value.copy() if type(value) in (list, np.ndarray) else value


@records(np.expand_dims)
def _expand_dims(recorder: Recorder, a: Any, axis: Any) -> Any:
    axes = tuple(axis) if isinstance(axis, list) else axis  # CuPy's takes no lists.
    return viewed(_array(a), lambda array: np.expand_dims(array, axes))


_function: Any
for _function in (np.transpose, np.moveaxis, np.flip, np.broadcast_to, np.rollaxis, np.flipud,
                  np.fliplr):  # fmt: skip
    _viewed(_function)
_viewed(np.squeeze, "squeeze")
_viewed(np.swapaxes, "swapaxes")


@records(np.broadcast_arrays)
def _broadcast_arrays(recorder: Recorder, *arrays: Any) -> tuple[Any, ...]:
    if not all(type(each) is LazyChunk and not is_scalar(each) for each in arrays):
        raise UnfusibleError(GraphBreak.OPERAND, "numbers among arrays")
    shape = np.broadcast_shapes(*(each.shape for each in arrays))
    return tuple(each if each.shape == shape else np.broadcast_to(each, shape) for each in arrays)


# Rearranging ----------------------------------------------------------------------------


def _rearranged(function: Callable[..., Any], recorder: Recorder, a: Any, *args: Any,
                **options: Any) -> Any:  # fmt: skip
    """Record a call of NumPy's that moves elements to where numbers and the shape say.

    NumPy makes it, on the array itself, so that its errors, its order in memory and whether it
    is a view are NumPy's. By memory alone (orders A and K) it would depend on what stands in.
    """
    if not isinstance(a, LazyChunk) or not all(map(_is_of_numbers, (*args, *options.values()))):
        raise UnfusibleError(GraphBreak.OPTION, "elements that a chunk's values move")
    return compute(recorder, function, (a, *args), options, copies=True)


def _is_of_numbers(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_of_numbers, value))
    return value is None or is_integer(value) or (type(value) is str and value in ("C", "F"))


for _function in (np.atleast_1d, np.atleast_2d, np.atleast_3d, np.tile):
    records(_function)(partial(_rearranged, _function))


@records(np.roll)
def _roll(recorder: Recorder, a: Any, shift: Any, axis: Any = None) -> Any:
    """Record two views of an array side by side: what is computed of them is, part by part.

    Three points of 32 MB, one of each side, read and write 96 MB less so. What is rolled is
    computed before: others are likely to take it as it is, or rolled in another way.
    """
    shifts, axes = ((each,) if type(each) is int else each for each in (shift, axis))
    pairs = type(shifts) is type(axes) is tuple and len(shifts) == len(axes) > 0
    plain = pairs and all(type(each) is int for each in (*shifts, *axes))
    if not isinstance(a, LazyChunk) or not plain or not a.size or not a.ndim:
        return _rearranged(np.roll, recorder, a, shift, axis)
    if type(a._view) is not Compound:
        recorder.register(a._node)
    for each, along in zip(shifts, axes, strict=True):
        a = _rolled(recorder, a, each, normalize_axis_index(along, a.ndim))
    return a


def _rolled(recorder: Recorder, a: LazyChunk, shift: int, axis: int) -> LazyChunk:
    """Return an array whose elements are moved along an axis, from its end to its start."""
    before, length = (slice(None),) * axis, a.shape[axis]
    last = length - shift % length
    starts = [slice(0, n) for n in a.shape]
    parts: list[tuple[Box, Node]] = []
    for start, stop in ((last, length), (0, last)):
        if start < stop:
            starts[axis] = slice((start - last) % length, (start - last) % length + stop - start)
            parts += parts_within(a[*before, start:stop], tuple(starts))
    return LazyChunk(recorder, a._like, fresh=True, view=Compound(recorder, parts, a._like))


@records(np.reshape)
def _reshape(recorder: Recorder, a: Any, /, *args: Any, **options: Any) -> Any:
    """Record a view where axes are but divided: NumPy gives one of any array then.

    Blocks of neighbours that are reduced, as coarser grids are made, are one kernel so.
    """
    plain = args and not options and args[1:] in ((), ("C",)) and _is_of_numbers(args[0])
    if isinstance(a, LazyChunk) and plain:
        shape = np.broadcast_to(np.False_, a.shape).reshape(args[0]).shape
        if divides(a.shape, shape):
            return viewed(a, lambda array: array.reshape(shape))
    return _rearranged(np.reshape, recorder, a, *args, **options)


def divides(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Return whether each axis of a shape is several neighbours of another one, or one of them.

    Examples
    --------
    >>> from gpusched.record.functions import divides
    >>> divides((6, 4), (3, 2, 4)), divides((6, 4), (6, 2, 2, 1)), divides((6, 4), (4, 6))
    (True, True, False)
    """
    k = 0
    for length in shape:
        size = 1
        while k < len(into) and (size < length or into[k] == 1):
            size *= into[k]
            k += 1
        if size != length:
            return False
    return k == len(into)


records(np.ravel, method="ravel")(partial(_rearranged, np.ravel))
records(np.repeat, method="repeat")(partial(_rearranged, np.repeat))


# Joining --------------------------------------------------------------------------------


@records(np.concatenate)
def _concatenate(recorder: Recorder, arrays: Any, /, axis: Any = 0) -> Any:
    return _joined(recorder, np.concatenate, arrays, axis)


@records(np.stack)
def _stack(recorder: Recorder, arrays: Any, axis: Any = 0) -> Any:
    return _joined(recorder, np.stack, arrays, axis)


def _joined(recorder: Recorder, function: Callable[..., Any], arrays: Any, axis: Any) -> Any:
    """Record a call of NumPy's that copies arrays of one dtype into a new one.

    Notes
    -----
    NumPy makes the call, on the arrays themselves: errors, shape and order in memory are its own.
    Elements are moved as they are, since all are of the result's dtype, so that no conversion
    reports anything of an array that is still to be computed. The result is always a new array.
    """
    if type(arrays) not in (list, tuple) or not (axis is None or type(axis) is int):
        raise UnfusibleError(GraphBreak.OPERAND, "arrays that are not in a list or tuple")
    # A constant is copied, as all that plans keep: the program may change its own array later.
    chunks = [
        LazyChunk(recorder, recorder.constant(each)) if type(each) is np.ndarray else each
        for each in arrays
    ]
    if not all(isinstance(each, LazyChunk) for each in chunks):
        raise UnfusibleError(GraphBreak.OPERAND, "arrays that are not chunks")
    if len({each.dtype for each in chunks}) != 1 or chunks[0].dtype not in SUPPORTED:
        raise UnfusibleError(GraphBreak.DTYPE, "arrays of several dtypes joined")
    if function is np.concatenate and len(chunks) == 1 and axis is not None:
        (only,) = chunks
        if -only.ndim <= axis < only.ndim and (alone := own_array(only)) is not None:
            return alone
    found = compute(recorder, function, (chunks,), {"axis": axis}, copies=True)
    return LazyChunk(recorder, found._node, fresh=True)


def own_array(chunk: LazyChunk) -> LazyChunk | None:
    """Return a copy of a chunk in C order, for which its expression is computed; None if it is not.

    So it is where the chunk's array is known to be in that order, as elementwise results are: what
    dask's gradients join would be written and read, for a slope 185 MB instead of 62.
    """
    recorder = chunk._recorder
    for each in postorder([chunk._node], lambda each: id(each) in recorder.done):
        if id(each) in recorder.done:
            array = recorder.contents[recorder.done[id(each)]]
            if not falls(array.shape, array.strides):
                return None
        elif not isinstance(each, Apply | Scalar):
            return None
    return LazyChunk(recorder, chunk._node, fresh=True)


# What is known from dtype and shape -----------------------------------------------------


@records(np.shape)
def _shape(recorder: Recorder, a: Any) -> Any:
    return a.shape


@records(np.ndim)
def _ndim(recorder: Recorder, a: Any) -> Any:
    return a.ndim


@records(np.size)
def _size(recorder: Recorder, a: Any, axis: int | None = None) -> Any:
    return a.size if axis is None else a.shape[axis]


@records(np.result_type)
def _result_type(recorder: Recorder, *arrays: Any) -> Any:
    return np.result_type(*(a.dtype if isinstance(a, LazyChunk) else a for a in arrays))


@records(np.iscomplexobj)
def _iscomplexobj(recorder: Recorder, x: Any) -> bool:
    return bool(x.dtype.kind == "c")


@records(np.isrealobj)
def _isrealobj(recorder: Recorder, x: Any) -> bool:
    return bool(x.dtype.kind != "c")


def _filled(recorder: Recorder, a: Any, fill: Any, dtype: Any, shape: Any) -> Any:
    if not isinstance(fill, bool | int | float | np.generic):
        raise UnfusibleError(GraphBreak.OPERAND, f"fill value of type {type(fill).__name__}")
    target = node_operand(recorder, a).dtype if dtype is None else np.dtype(dtype)
    # As NumPy takes it, or refuses it.
    shape = a.shape if shape is None else np.broadcast_to(np.int8(), shape).shape
    found = recorder.call(recorder.device.full, (shape, fill, target), {}, copies=True)
    return LazyChunk(recorder, found, fresh=True) if isinstance(found, Node) else found


@records(np.zeros_like)
def _zeros_like(recorder: Recorder, a: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    return _filled(recorder, a, 0, dtype, shape)


@records(np.empty_like)
def _empty_like(recorder: Recorder, prototype: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    return _filled(recorder, prototype, 0, dtype, shape)


@records(np.ones_like)
def _ones_like(recorder: Recorder, a: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    return _filled(recorder, a, 1, dtype, shape)


@records(np.full_like)
def _full_like(
    recorder: Recorder, a: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None
) -> Any:
    return _filled(recorder, a, fill_value, dtype, shape)


# Methods that are not functions ---------------------------------------------------------


@records_method("transpose")
def _transpose(recorder: Recorder, a: LazyChunk, *axes: Any) -> Any:
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else (axes or None)
    return np.transpose(a, order)


@records_method("reshape")
def _reshape_method(recorder: Recorder, a: LazyChunk, first: Any, /, *others: Any,
                    order: Any = "C") -> Any:  # fmt: skip
    return np.reshape(a, (first, *others) if others else first, order)


@records_method("flatten")
def _flatten_method(recorder: Recorder, a: LazyChunk, order: Any = "C") -> Any:
    return np.ravel(a, order).copy()


@records_method("clip")
def _clip_method(recorder: Recorder, a: LazyChunk, min: Any = None, max: Any = None) -> Any:
    return _clip(recorder, a, min, max)


@records_method("conj", "conjugate")
def _conjugate(recorder: Recorder, a: LazyChunk) -> Any:
    return np.conjugate(a) if a.dtype.kind == "c" else a


@records_method("copy")
def _copy_method(recorder: Recorder, a: LazyChunk) -> LazyChunk:
    made = recorder.made_leaf(recorder.register(a._node), copied, copies=True)
    return LazyChunk(recorder, made, scalar=a._scalar, fresh=not a._scalar)
