"""NumPy functions (not ufuncs) and array methods that are recorded, in terms of nodes.

Each takes the options it can honour and raises `UnfusibleError` for others; the caller then hands
the call over to NumPy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.fusion.chunk import HANDLERS, METHODS, LazyChunk, elementwise, operand
from gpusched.fusion.expression import Node, UnfusibleError
from gpusched.fusion.moments import moments
from gpusched.fusion.operations import CLIP
from gpusched.fusion.record import Recorder

_MISSING = np._NoValue


def _records(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


def _refuse(**options: Any) -> None:
    """Raise unless every option has been left alone."""
    given = [name for name, value in options.items() if value is not None and value is not _MISSING]
    if given:
        raise UnfusibleError(f"option {', '.join(given)}")


def _node(recorder: Recorder, value: Any) -> Node:
    found = operand(recorder, value)
    if not isinstance(found, Node):
        raise UnfusibleError(f"operand of type {type(value).__name__}")
    return found


# Elementwise ----------------------------------------------------------------------------


@_records(np.where)
def _where(recorder: Recorder, condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise UnfusibleError("where with one argument")
    test = recorder.cast(operand(recorder, condition), np.dtype(bool))
    operands = [operand(recorder, value) for value in (x, y)]
    kinds = [o.dtype if isinstance(o, Node) else o for o in operands]
    for o in operands:
        if type(o) is int and not isinstance(o, bool):
            np.result_type(*kinds)
    try:
        dtype = np.result_type(*kinds)
    except OverflowError as error:
        raise UnfusibleError(str(error)) from error
    arguments = tuple(recorder.cast(o, dtype) for o in operands)
    node = recorder.apply("where", (test, *arguments), dtype)
    return LazyChunk(recorder, node)


@_records(np.clip)
def _clip(recorder: Recorder, a: Any, a_min: Any = _MISSING, a_max: Any = _MISSING, out: Any = None,
          *, min: Any = _MISSING, max: Any = _MISSING, **kwargs: Any) -> Any:  # fmt: skip
    _refuse(out=out, **kwargs)
    low = min if a_min is _MISSING else a_min
    high = max if a_max is _MISSING else a_max
    low, high = (None if v is _MISSING else v for v in (low, high))
    if low is None and high is None:
        raise UnfusibleError("clip without bounds")
    if low is None:
        return elementwise(recorder, np.minimum, (a, high))
    if high is None:
        return elementwise(recorder, np.maximum, (a, low))
    return elementwise(recorder, CLIP, (a, low, high))


@_records(np.round, np.around)
def _round(recorder: Recorder, a: Any, decimals: int = 0, out: Any = None) -> Any:
    _refuse(out=out)
    node = _node(recorder, a)
    if node.dtype.kind in "iu" and decimals >= 0:
        return LazyChunk(recorder, node)
    if node.dtype.kind != "f" or type(decimals) is not int:
        raise UnfusibleError(f"dtype {node.dtype}")
    if decimals == 0:
        return np.rint(a)
    # NumPy's own formula (numpy/_core/src/multiarray/calculation.c, PyArray_Round).
    factor = float(10 ** abs(decimals))
    first, second = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
    return second(np.rint(first(a, factor)), factor)


@_records(np.real, np.real_if_close)
def _real(recorder: Recorder, val: Any, **kwargs: Any) -> Any:
    _refuse(**kwargs)
    return val


@_records(np.copy)
def _copy(recorder: Recorder, a: Any, order: str = "K", subok: bool = False) -> Any:
    if order != "K":
        raise UnfusibleError("option order")
    return LazyChunk(recorder, recorder.made_leaf(recorder.register(_node(recorder, a)), np.copy,
                                                  copies=True))  # fmt: skip


@_records(np.nan_to_num)
def _nan_to_num(recorder: Recorder, x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None,
                neginf: Any = None) -> Any:  # fmt: skip
    node = _node(recorder, x)
    if node.dtype.kind != "f" or not copy:
        raise UnfusibleError(f"dtype {node.dtype}")
    limits = np.finfo(node.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    bounded = np.where(x == np.inf, high, np.where(x == -np.inf, low, x))
    return np.where(np.isnan(x), nan, bounded).astype(node.dtype)


@_records(np.isclose)
def _isclose(recorder: Recorder, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8,
             equal_nan: bool = False) -> Any:  # fmt: skip
    if not all(isinstance(v, LazyChunk) and v.dtype.kind == "f" for v in (a, b)):
        raise UnfusibleError("operands that are not floating")
    close = (abs(a - b) <= (atol + rtol * abs(b))) & np.isfinite(b) | (a == b)
    return close | (np.isnan(a) & np.isnan(b)) if equal_nan else close


# Views ----------------------------------------------------------------------------------


def _viewed(function: Callable[..., Any]) -> None:
    def handler(recorder: Recorder, a: Any, *args: Any, **kwargs: Any) -> Any:
        node = _node(recorder, a)
        a._fresh = False
        moved = recorder.view(node, lambda array: function(array, *args, **kwargs), repeats=False)
        return LazyChunk(recorder, moved)

    HANDLERS[function] = handler


for _function in (np.expand_dims, np.squeeze, np.transpose, np.moveaxis, np.swapaxes, np.flip,
                  np.broadcast_to, np.rollaxis, np.flipud, np.fliplr):  # fmt: skip
    _viewed(_function)


# What is known from dtype and shape -----------------------------------------------------


@_records(np.shape)
def _shape(recorder: Recorder, a: Any) -> Any:
    return a.shape


@_records(np.ndim)
def _ndim(recorder: Recorder, a: Any) -> Any:
    return a.ndim


@_records(np.size)
def _size(recorder: Recorder, a: Any, axis: int | None = None) -> Any:
    return a.size if axis is None else a.shape[axis]


@_records(np.result_type)
def _result_type(recorder: Recorder, *arrays: Any) -> Any:
    return np.result_type(*(a.dtype if isinstance(a, LazyChunk) else a for a in arrays))


@_records(np.iscomplexobj)
def _iscomplexobj(recorder: Recorder, x: Any) -> bool:
    return False


@_records(np.isrealobj)
def _isrealobj(recorder: Recorder, x: Any) -> bool:
    return True


def _filled(value: Any) -> Callable[..., Any]:
    """Return the handler of ``zeros_like`` and the like; `value` None is taken from the call."""

    def handler(recorder: Recorder, a: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        fill, *rest = args if value is None else (value, *args)
        _refuse(**kwargs, positional=rest or None)
        if not isinstance(fill, bool | int | float | np.generic):
            raise UnfusibleError(f"fill value of type {type(fill).__name__}")
        target = _node(recorder, a).dtype if dtype is None else np.dtype(dtype)
        found = recorder.call(recorder.device.full, (a.shape, fill, target), {}, copies=True)
        return LazyChunk(recorder, found, fresh=True) if isinstance(found, Node) else found

    return handler


HANDLERS[np.zeros_like] = HANDLERS[np.empty_like] = _filled(0)
HANDLERS[np.ones_like] = _filled(1)
HANDLERS[np.full_like] = _filled(None)


# Reductions -----------------------------------------------------------------------------


def _axes(node: Node, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(node.ndim))
    return tuple(sorted(normalize_axis_tuple(axis, node.ndim)))


def _reduced(recorder: Recorder, combine: str, node: Node, axis: Any, keepdims: Any) -> LazyChunk:
    keep = bool(keepdims) and keepdims is not _MISSING
    found = recorder.reduce(combine, node, _axes(node, axis), keep)
    return LazyChunk(recorder, found, scalar=not found.shape)


def _total_dtype(dtype: np.dtype, wanted: Any) -> np.dtype:
    """Return the dtype in which NumPy adds up: at least 64 bits for integers."""
    if wanted is not None and wanted is not _MISSING:
        return np.dtype(wanted)
    if dtype.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def _sum(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
         keepdims: Any = False, initial: Any = None, where: Any = None, *,
         combine: str = "add") -> Any:  # fmt: skip
    _refuse(out=out, initial=initial, where=where)
    node = _node(recorder, a)
    converted = recorder.cast(node, _total_dtype(node.dtype, dtype))
    return _reduced(recorder, combine, converted, axis, keepdims)


def extreme(recorder: Recorder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
             initial: Any = None, where: Any = None, *, combine: str) -> Any:  # fmt: skip
    _refuse(out=out, initial=initial, where=where)
    return _reduced(recorder, combine, _node(recorder, a), axis, keepdims)


def _truth(recorder: Recorder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *,
           where: Any = None, combine: str) -> Any:  # fmt: skip
    _refuse(out=out, where=where)
    node = recorder.cast(_node(recorder, a), np.dtype(bool))
    return _reduced(recorder, combine, node, axis, keepdims)


def _count(node: Node, axis: Any) -> int:
    count = 1
    for k in _axes(node, axis):
        count *= node.shape[k]
    return count


def _mean(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
          keepdims: Any = False, *, where: Any = None) -> Any:  # fmt: skip
    _refuse(out=out, where=where)
    node = _node(recorder, a)
    if dtype is None and node.dtype.kind in "biu":
        dtype = np.float64
    total = _sum(recorder, a, axis, dtype, keepdims=keepdims)
    if total.dtype.kind != "f":
        raise UnfusibleError(f"mean in dtype {total.dtype}")
    return np.true_divide(total, _count(node, axis))


def _var(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
         ddof: Any = 0, keepdims: Any = False, *, where: Any = None, mean: Any = None,
         correction: Any = None) -> Any:  # fmt: skip
    _refuse(out=out, where=where, mean=mean, correction=correction)
    node = _node(recorder, a)
    if dtype is None and node.dtype.kind in "biu":
        dtype = np.float64
    if dtype is not None and np.dtype(dtype).kind != "f":
        raise UnfusibleError(f"variance in dtype {dtype}")
    divisor = _count(node, axis) - ddof
    if divisor <= 0:
        raise UnfusibleError("no degrees of freedom left")
    axes = _axes(node, axis)
    if not axes or 0 in node.shape:
        raise UnfusibleError("variance of nothing")
    keep = bool(keepdims) and keepdims is not _MISSING
    squares = moments(a, axes, _count(node, axis), keep).squares
    found = recorder.cast((squares / divisor)._node, np.dtype(dtype or node.dtype))
    return LazyChunk(recorder, found, scalar=not found.shape)


def _std(recorder: Recorder, *args: Any, **kwargs: Any) -> Any:
    return np.sqrt(_var(recorder, *args, **kwargs))


@_records(np.count_nonzero)
def _count_nonzero(recorder: Recorder, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if axis is None:
        raise UnfusibleError("count_nonzero gives a Python integer")
    return _sum(recorder, a != 0, axis, keepdims=keepdims)


# Reductions that skip NaN ---------------------------------------------------------------


def _without_nan(recorder: Recorder, a: Any, instead: float) -> Any:
    return np.where(np.isnan(a), instead, a) if a.dtype.kind == "f" else a


def _nansum(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
            keepdims: Any = False, initial: Any = None, where: Any = None, *,
            combine: str = "add") -> Any:  # fmt: skip
    if not isinstance(a, LazyChunk):
        raise UnfusibleError(f"operand of type {type(a).__name__}")
    replaced = _without_nan(recorder, a, 1.0 if combine == "multiply" else 0.0)
    return _sum(recorder, replaced, axis, dtype, out, keepdims, initial, where, combine=combine)


def _warn_if_all_nan(array: np.ndarray) -> np.ndarray:
    if np.isnan(array).any():
        warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=2)
    return array


def _nanextreme(recorder: Recorder, a: Any, *args: Any, **kwargs: Any) -> Any:
    found = extreme(recorder, a, *args, **kwargs)
    if found.dtype.kind != "f":
        return found
    checked = recorder.made_leaf(recorder.register(found._node), _warn_if_all_nan)
    return LazyChunk(recorder, checked, scalar=not checked.shape)


_REDUCTIONS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "sum": (_sum, {"combine": "add"}),
    "prod": (_sum, {"combine": "multiply"}),
    "min": (extreme, {"combine": "minimum"}),
    "max": (extreme, {"combine": "maximum"}),
    "any": (_truth, {"combine": "logical_or"}),
    "all": (_truth, {"combine": "logical_and"}),
    "mean": (_mean, {}),
    "var": (_var, {}),
    "std": (_std, {}),
    "nansum": (_nansum, {"combine": "add"}),
    "nanprod": (_nansum, {"combine": "multiply"}),
    "nanmin": (_nanextreme, {"combine": "fmin"}),
    "nanmax": (_nanextreme, {"combine": "fmax"}),
}


def _install() -> None:
    """Enter the reductions as functions and, where arrays have them, as methods."""
    for name, (handler, options) in _REDUCTIONS.items():

        def record(recorder: Recorder, a: Any, *args: Any, _handler: Any = handler,
                   _options: Any = options, **kwargs: Any) -> Any:  # fmt: skip
            return _handler(recorder, a, *args, **kwargs, **_options)

        HANDLERS[getattr(np, name)] = record
        if hasattr(np.ndarray, name):
            METHODS[name] = _method(getattr(np, name))


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: LazyChunk, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return method


def _reduce_method(self: LazyChunk, ufunc: np.ufunc, axis: Any = 0, dtype: Any = None,
                   out: Any = None, keepdims: Any = False, initial: Any = _MISSING,
                   where: Any = True) -> Any:  # fmt: skip
    """Record ``ufunc.reduce``."""
    if where is not True:
        raise UnfusibleError("option where")
    recorder, name = self._recorder, ufunc.__name__
    _refuse(out=out, initial=initial)
    if name in ("add", "multiply"):
        return _sum(recorder, self, axis, dtype, keepdims=keepdims, combine=name)
    _refuse(dtype=dtype)
    if name in ("logical_or", "logical_and"):
        return _truth(recorder, self, axis, keepdims=keepdims, combine=name)
    return extreme(recorder, self, axis, keepdims=keepdims, combine=name)


def _transpose(self: LazyChunk, *axes: Any) -> Any:
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else (axes or None)
    return np.transpose(self, order)


def _conjugate(self: LazyChunk) -> LazyChunk:
    return self


_install()
METHODS["reduce"] = _reduce_method
METHODS["transpose"] = _transpose
METHODS["conj"] = METHODS["conjugate"] = _conjugate
METHODS["clip"] = _method(np.clip)
METHODS["round"] = _method(np.round)
METHODS["squeeze"] = _method(np.squeeze)
METHODS["swapaxes"] = _method(np.swapaxes)
METHODS["copy"] = lambda self, order="K": _copy(self._recorder, self, order)
HANDLERS[np.amin], HANDLERS[np.amax] = HANDLERS[np.min], HANDLERS[np.max]
