"""NumPy functions (not ufuncs) and array methods that are recorded, in terms of nodes.

The parameters of each are the ones it honours: `gpusched.record.chunk.honoured` hands a call with
any other over to NumPy, as it does where one raises `UnfusibleError`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import HALF, SUPPORTED, part
from gpusched.emit.floatingpoint import REPORTED, note, silent
from gpusched.emit.operations import CLIP
from gpusched.plan.expression import Leaf, Node, UnfusibleError
from gpusched.record import parts
from gpusched.record.catalogue import own
from gpusched.record.chunk import (
    UFUNC_METHODS,
    LazyChunk,
    complex_chunk,
    compute,
    elementwise,
    operand,
    parts_of,
    records,
    records_method,
    viewed,
)
from gpusched.record.gathers import IDEMPOTENT, joined_twice, window_totals
from gpusched.record.moments import moments
from gpusched.record.record import Recorder, copied

_MISSING = np._NoValue


def _node(recorder: Recorder, value: Any) -> Node:
    found = operand(recorder, value)
    if not isinstance(found, Node):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(value).__name__}")
    return found


# Elementwise ----------------------------------------------------------------------------


@records(np.where)
def _where(recorder: Recorder, condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "where with one argument")
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
    node = _node(recorder, a)
    if node.dtype.kind != "f" or type(decimals) is not int:
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {node.dtype}")
    if decimals == 0:
        return np.rint(a)
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


def _parts(val: Any) -> tuple[LazyChunk, LazyChunk]:
    """Return the parts of a complex chunk, which are views of it in NumPy."""
    if not isinstance(val, LazyChunk) or val.dtype.kind != "c":
        raise UnfusibleError(GraphBreak.DTYPE, "no complex numbers")
    val._fresh = False
    return parts_of(val._recorder, val._node, parts.apart)


def _part(recorder: Recorder, val: Any, number: int) -> LazyChunk:
    """Return one of the parts: of an array that exists, the view that others may write to."""
    found = _parts(val)[number]
    if not isinstance(val._node, Leaf) or not val.shape:
        return found
    view = (np.real, np.imag)[number]
    return LazyChunk(recorder, recorder.leaf_view(val._node.register, view))


@records(np.real)
def _real(recorder: Recorder, val: Any) -> Any:
    return _part(recorder, val, 0) if val.dtype.kind == "c" else val


@records(np.imag)
def _imag(recorder: Recorder, val: Any) -> Any:
    return _part(recorder, val, 1)


@records(np.angle)
def _angle(recorder: Recorder, z: Any, deg: Any = False) -> Any:
    if deg is not False:
        raise UnfusibleError(GraphBreak.OPTION, "option deg")
    first, second = _parts(z)
    return np.arctan2(second, first)


@records(np.real_if_close)
def _real_if_close(recorder: Recorder, a: Any) -> Any:
    if a.dtype.kind == "c":
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a result whose dtype depends on values")
    return _array(a)


@records(np.copy)
def _copy(recorder: Recorder, a: Any) -> Any:
    made = recorder.made_leaf(recorder.register(_node(recorder, a)), np.copy, copies=True)
    return LazyChunk(recorder, made, fresh=True)


@records(np.nan_to_num)
def _nan_to_num(recorder: Recorder, x: Any, *, nan: Any = 0.0, posinf: Any = None,
                neginf: Any = None) -> Any:  # fmt: skip
    node = _node(recorder, x)
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
    if not all(isinstance(v, LazyChunk) and v.dtype.kind == "f" for v in (a, b)):
        raise UnfusibleError(GraphBreak.DTYPE, "operands that are not floating")
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
    number = value is None or type(value) is int or isinstance(value, np.integer)
    return number or (type(value) is str and value in ("C", "F"))


for _function in (np.atleast_1d, np.atleast_2d, np.atleast_3d, np.reshape, np.roll, np.tile):
    records(_function)(partial(_rearranged, _function))
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
        function([np.broadcast_to(np.int8(), only.shape)], axis)
        if recorder.is_in_c_order(only._node):  # A copy of it is what is computed of it.
            return LazyChunk(recorder, only._node, fresh=True)
    found = compute(recorder, function, (chunks,), {"axis": axis}, copies=True)
    return LazyChunk(recorder, found._node, fresh=True)


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
    target = _node(recorder, a).dtype if dtype is None else np.dtype(dtype)
    # The caller may change a list.
    shape = a.shape if shape is None else _kept(shape)
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


# Reductions -----------------------------------------------------------------------------


def _axes(node: Node, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(node.ndim))
    given = axis if type(axis) is tuple else (axis,)
    if not all(type(each) is int or isinstance(each, np.integer) for each in given):
        raise UnfusibleError(GraphBreak.OPTION, f"axis {axis!r}")
    return tuple(sorted(normalize_axis_tuple(given, node.ndim)))


def _keeps(keepdims: Any) -> bool:
    if type(keepdims) not in (bool, int):
        raise UnfusibleError(GraphBreak.OPTION, f"keepdims {keepdims!r}")
    return bool(keepdims)


def total_dtype(dtype: np.dtype, wanted: Any) -> np.dtype:
    """Return the dtype in which NumPy adds up: at least 64 bits for integers."""
    if wanted is not None:
        return np.dtype(wanted)
    if dtype.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def joined_dtype(combine: str, dtype: np.dtype, wanted: Any = None) -> np.dtype:
    """Return the dtype in which NumPy joins values of another one.

    Raises
    ------
    UnfusibleError
        If another one is wanted where values are neither added nor multiplied.
    """
    if combine in ("add", "multiply"):
        return total_dtype(dtype, wanted)
    if wanted is not None:
        raise UnfusibleError(GraphBreak.OPTION, "option dtype")
    return np.dtype(bool) if combine in ("logical_or", "logical_and") else dtype


def reduced(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
            keepdims: Any = False, combine: str = "add") -> LazyChunk:  # fmt: skip
    """Record the values of an array joined along axes."""
    given = _node(recorder, a)
    node = recorder.cast(given, joined_dtype(combine, given.dtype, dtype))
    if not node.shape and type(axis) is int and axis in (0, -1):
        axis = None  # as NumPy has it
    keep, axes = _keeps(keepdims), _axes(node, axis)
    if (keep and not node.shape) or (node.shape and not axes):
        raise UnfusibleError(GraphBreak.OPTION, "a reduction without an axis")
    found = None
    if combine == "add":
        found = window_totals(recorder, given, node.dtype, axes, keep)
    elif combine in IDEMPOTENT:
        found = joined_twice(recorder, combine, node, axes, keep)
    if found is None:
        found = recorder.reduce(combine, node, axes, keep)
    return LazyChunk(recorder, found, scalar=not found.shape, fresh=bool(found.shape))


def _count(node: Node, axis: Any) -> int:
    count = 1
    for k in _axes(node, axis):
        count *= node.shape[k]
    return count


@records(np.mean, method="mean")
def _mean(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
          keepdims: Any = False) -> Any:  # fmt: skip
    node = _node(recorder, a)
    halves = dtype is None and node.dtype == HALF
    if dtype is None and node.dtype.kind in "biu":
        dtype = np.float64
    # NumPy adds float16 up in float32, and rounds the quotient.
    total = reduced(recorder, a, axis, np.float32 if halves else dtype, keepdims=keepdims)
    if total.dtype.kind not in "fc":
        raise UnfusibleError(GraphBreak.DTYPE, f"mean in dtype {total.dtype}")
    found = np.true_divide(total, _count(node, axis))
    return found.astype(HALF) if halves else found


@records(np.var, method="var")
def _var(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0,
         keepdims: Any = False) -> Any:  # fmt: skip
    node = _node(recorder, a)
    if dtype is None and node.dtype.kind in "biu":
        dtype = np.float64
    if dtype is not None and np.dtype(dtype).kind != "f":
        raise UnfusibleError(GraphBreak.DTYPE, f"variance in dtype {dtype}")
    if dtype is None and node.dtype.kind == "c":
        dtype = part(node.dtype)
    kept = np.dtype(dtype or node.dtype)
    if kept == HALF:
        raise UnfusibleError(GraphBreak.DTYPE, "variance in float16, each step of which is rounded")
    count = _count(node, axis)
    divisor = count - ddof
    if divisor <= 0:
        raise UnfusibleError(GraphBreak.EMPTY, "no degrees of freedom left")
    axes = _axes(node, axis)
    if not axes or 0 in node.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "variance of nothing")
    keep = _keeps(keepdims)
    if node.dtype.kind == "c":
        first, second = (moments(each, axes, count, keep, dtype=kept).squares for each in _parts(a))
        squares = first + second
    else:
        squares = moments(a, axes, count, keep, dtype=kept).squares
    found = recorder.cast((squares / divisor)._node, kept)
    return LazyChunk(recorder, found, scalar=not found.shape)


@records(np.std, method="std")
def _std(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0,
         keepdims: Any = False) -> Any:  # fmt: skip
    return np.sqrt(_var(recorder, a, axis, dtype, ddof=ddof, keepdims=keepdims))


@records(np.count_nonzero)
def _count_nonzero(recorder: Recorder, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if axis is None:
        raise UnfusibleError(GraphBreak.OPTION, "count_nonzero gives a Python integer")
    return reduced(recorder, a != 0, axis, keepdims=keepdims)


# Reductions that skip NaN ---------------------------------------------------------------


def without_nan(recorder: Recorder, a: Any, instead: float) -> Any:
    """Return a lazy chunk with a number instead of NaN."""
    return np.where(np.isnan(a), instead, a) if a.dtype.kind in "fc" else a


def _nansum(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
            keepdims: Any = False) -> Any:  # fmt: skip
    if not isinstance(a, LazyChunk):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(a).__name__}")
    replaced = without_nan(recorder, a, 1.0 if combine == "multiply" else 0.0)
    return reduced(recorder, replaced, axis, dtype, keepdims=keepdims, combine=combine)


@own("portable")
def _report_if_all_nan(array: np.ndarray) -> np.ndarray:
    """Return an array; where it has NaN, NumPy repeats the calls and warns of slices of NaN."""
    if np.isnan(array).any():
        note(REPORTED)
    return array


def report_if_nan(found: LazyChunk) -> LazyChunk:
    """Record that NumPy repeats the calls where there is NaN, since it may warn of it."""
    recorder = found._recorder
    if silent():
        return found
    checked = recorder.made_leaf(recorder.register(found._node), _report_if_all_nan)
    return LazyChunk(recorder, checked, scalar=not checked.shape)


@records(np.nanmean)
def _nanmean(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
             keepdims: Any = False) -> Any:  # fmt: skip
    """Record NumPy's mean without NaN: the sum by the count, in the dtype of the sum."""
    node = _node(recorder, a)
    if node.dtype.kind not in "fc":
        return _mean(recorder, a, axis, dtype, keepdims=keepdims)
    if dtype is not None or node.dtype.kind == "c" or node.dtype == HALF:
        raise UnfusibleError(GraphBreak.DTYPE, f"a mean without NaN of {node.dtype}, or in another")
    total = _nansum("add", recorder, a, axis, keepdims=keepdims)
    count = reduced(recorder, ~np.isnan(a), axis, keepdims=keepdims)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.true_divide(total, count).astype(total.dtype)
    return report_if_nan(found)


def _nanextreme(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, *,
                keepdims: Any = False) -> Any:  # fmt: skip
    found = reduced(recorder, a, axis, keepdims=keepdims, combine=combine)
    if found.dtype.kind != "f":
        return found
    return report_if_nan(found)


def _total(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
           keepdims: Any = False) -> Any:  # fmt: skip
    return reduced(recorder, a, axis, dtype, keepdims=keepdims, combine=combine)


def _extreme(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, *,
             keepdims: Any = False) -> Any:  # fmt: skip
    return reduced(recorder, a, axis, keepdims=keepdims, combine=combine)


for _name, _combine in {"sum": "add", "prod": "multiply"}.items():
    records(getattr(np, _name), method=_name)(partial(_total, _combine))
for _name, _combine in {"min": "minimum", "max": "maximum", "any": "logical_or",
                        "all": "logical_and"}.items():  # fmt: skip
    records(getattr(np, _name), method=_name)(partial(_extreme, _combine))
records(np.amin)(partial(_extreme, "minimum"))
records(np.amax)(partial(_extreme, "maximum"))
records(np.nansum)(partial(_nansum, "add"))
records(np.nanprod)(partial(_nansum, "multiply"))
records(np.nanmin)(partial(_nanextreme, "fmin"))
records(np.nanmax)(partial(_nanextreme, "fmax"))


def _reduce(self: LazyChunk, ufunc: np.ufunc, axis: Any = 0, dtype: Any = None, *,
            keepdims: Any = False) -> Any:  # fmt: skip
    """Record ``ufunc.reduce``."""
    return reduced(self._recorder, self, axis, dtype, keepdims=keepdims, combine=ufunc.__name__)


UFUNC_METHODS["reduce"] = _reduce


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
