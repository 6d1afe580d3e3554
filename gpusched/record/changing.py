"""Calls that write to an array: ``out=``, `numpy.copyto`, `numpy.putmask`, ``sort()`` and the like.

A lazy chunk shows another value from then on. That is recorded of arrays that the function has made
and that nothing else shows (`LazyChunk._fresh`); of any other one the recording ends.

Where ``where=`` chooses elements, the others are computed of ones, which is what they may be
computed of without a report of floating-point errors (`gpusched.record.assignments`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import Node
from gpusched.record.assignments import changed
from gpusched.record.catalogue import has
from gpusched.record.chunk import LazyChunk, chunks_in, compute, is_scalar, recorder_of
from gpusched.record.handlers import axis_of, records_change, records_method, records_special
from gpusched.record.record import PYTHON_SCALARS, Recorder


@records_special("out")
def _into(recorder: Recorder, function: Callable[..., Any], args: tuple[Any, ...],
          kwargs: dict[str, Any], out: Any, where: Any = True) -> LazyChunk:  # fmt: skip
    """Record a call whose result is written to an array; return this one.

    Parameters
    ----------
    function, args, kwargs
        What is called, without the options `out` and `where`.
    out
        Where its result is written to.
    where
        Which elements are.
    """
    name = function.__name__
    if type(out) is not LazyChunk:
        recorder.stop(GraphBreak.CHANGES(f"calls {name} with out="))
    whole = _whole(out)
    by_element = isinstance(function, np.ufunc) and function.signature is None
    if has(function, "early") or (isinstance(function, np.ufunc) and not by_element):
        _check_apart(whole, name, (args, kwargs))
    if where is not True:
        args = tuple(_guarded(recorder, each, where) for each in args)
    found = function(*args, **kwargs)
    if not by_element and np.shape(found) != out.shape:
        recorder.stop(GraphBreak.CHANGES(f"calls {name} with out= of another shape"))
    recorder.asks(out, *args)
    # Functions of other kinds compute in the dtype of what they write to.
    casting = "same_kind" if isinstance(function, np.ufunc) else "no"
    _write(whole, out, found, where, casting)
    return out


def _whole(array: LazyChunk) -> LazyChunk:
    """Return the array of the function's own that a change is one of: itself, or what it shows."""
    if not array.whole._fresh or not array.shape:
        recorder_of(array).stop(GraphBreak.CHANGES("changes a chunk in place"))
    return array.whole


def _check_apart(whole: LazyChunk, name: str, given: Any) -> None:
    """End the recording if a call reads what it writes to, as NumPy's result depends on when."""
    if any(each.whole is whole for each in chunks_in(given)):
        recorder_of(whole).stop(GraphBreak.CHANGES(f"calls {name}, which writes to what it reads"))


def _becomes(whole: LazyChunk, array: LazyChunk, node: Node) -> None:
    """Give a chunk another value, and what it shows a part of if it is not the whole itself."""
    array._node = node
    changed(recorder_of(array), array)
    whole._fresh = True  # if what the value is computed by was given it


def _guarded(recorder: Recorder, value: Any, mask: Any) -> Any:
    """Return an operand with ones where a mask chooses nothing."""
    if type(value) not in (LazyChunk, np.ndarray):
        return value
    if value.dtype.kind not in "biufc":
        recorder.stop(GraphBreak.DTYPE(f"dtype {value.dtype}"))
    return np.where(mask, value, value.dtype.type(1))


def _write(whole: LazyChunk, array: LazyChunk, value: Any, mask: Any = True,
           casting: Any = "same_kind") -> None:  # fmt: skip
    """Record that an array has another value from now on, or where a mask chooses its elements.

    `whole` is what `_whole` returned before the value was computed.
    """
    recorder = recorder_of(array)
    number = type(value) in PYTHON_SCALARS
    if not number and type(value) not in (LazyChunk, np.ndarray) and type(value) not in _SCALARS:
        recorder.stop(GraphBreak.CHANGES(f"writes a {type(value).__name__} to an array"))
    converted = _kind(value) <= _kind(array) if number else np.can_cast(
        value.dtype, array.dtype, casting)  # fmt: skip
    if not converted:
        recorder.stop(GraphBreak.CHANGES("changes a chunk in place, with another dtype"))
    if type(mask) not in (bool, LazyChunk, np.ndarray) or np.result_type(mask).kind != "b":
        recorder.stop(GraphBreak.CHANGES("writes to where something else than a mask chooses"))
    try:
        shape = np.broadcast_shapes(array.shape, np.shape(value), np.shape(mask))
    except ValueError:
        shape = None  # which NumPy says best
    if shape != array.shape:
        recorder.stop(GraphBreak.CHANGES("changes a chunk in place, with another shape"))
    new = array.dtype.type(value) if number else value.astype(array.dtype)
    if mask is not True or np.shape(new) != array.shape:
        new = np.where(mask, new, array)
    if type(new) is not LazyChunk or is_scalar(new) or new.dtype != array.dtype:
        recorder.stop(GraphBreak.CHANGES("changes a chunk in place"))
    _becomes(whole, array, new._node)


_SCALARS = {np.dtype(code).type for code in "?bhilqBHILQefdFD"}


def _kind(value: Any) -> int:
    """Return a number of a value's kind, which NumPy writes to arrays of the same or a larger."""
    return "biufc".index(np.result_type(value).kind)


@records_change(np.copyto)
def _copied(recorder: Recorder, dst: Any, src: Any, casting: Any = "same_kind",
            where: Any = True) -> None:  # fmt: skip
    if type(dst) is not LazyChunk:
        recorder.stop(GraphBreak.CHANGES("calls copyto, which may change its arguments"))
    _write(_whole(dst), dst, src, where, casting)


@records_change(np.putmask)
def _put(recorder: Recorder, a: Any, mask: Any, values: Any) -> None:
    if np.shape(values) in ((), np.shape(a)) and np.shape(mask) == np.shape(a):
        return _copied(recorder, a, values, "safe", mask)
    return _on_a_copy(np.putmask, recorder, a, mask, values)


def _on_a_copy(function: Callable[..., Any], /, recorder: Recorder, array: Any, *args: Any,
               **kwargs: Any) -> None:  # fmt: skip
    """Record a call that changes an array: the array is a changed copy from now on."""
    if type(array) is not LazyChunk:
        recorder.stop(
            GraphBreak.CHANGES(f"calls {function.__name__}, which may change its arguments")
        )
    whole = _whole(array)
    if has(function, "early"):
        _check_apart(whole, function.__name__, (args, kwargs))
    recorder.broke(function.__name__, GraphBreak.NO_KERNEL("no kernel for this function"))
    found = compute(recorder, partial(_changed, function), (array, *args), kwargs)
    _becomes(whole, array, found._node)


def _changed(function: Callable[..., Any], array: np.ndarray, *args: Any, **kwargs: Any) -> Any:
    """Return a copy of an array that a function has changed."""
    found = array.copy(order="K")
    function(found, *args, **kwargs)
    return found


for _function in (np.fill_diagonal, np.place, np.put, np.put_along_axis):
    records_change(_function)(partial(_on_a_copy, _function))


@records_method("fill")
def _fill(recorder: Recorder, array: LazyChunk, value: Any) -> None:
    if np.shape(value):
        recorder.stop(GraphBreak.CHANGES("fills an array with several values"))
    _copied(recorder, array, value, "unsafe")


@records_method("sort")
def _sort(recorder: Recorder, array: LazyChunk, axis: Any = -1, kind: Any = None) -> None:
    axis = axis_of(axis, array.ndim)
    _write(_whole(array), array, np.sort(array, axis=axis, kind=kind))


@records_method("partition")
def _partition(recorder: Recorder, array: LazyChunk, kth: Any, axis: Any = -1) -> None:
    axis = axis_of(axis, array.ndim)
    _write(_whole(array), array, np.partition(array, kth, axis=axis))
