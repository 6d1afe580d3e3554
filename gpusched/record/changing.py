"""Calls that write to an array: ``out=``, `numpy.copyto`, `numpy.putmask`, ``sort()`` and the like.

A lazy chunk shows another value from then on. That is recorded of arrays that the function has made
and that nothing else shows (`LazyChunk._fresh`); of any other one the recording ends.

Where ``where=`` chooses elements, the others are computed of ones, which is what they may be
computed of without a report of floating-point errors (`gpusched.record.chosen`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.record.assignments import changed
from gpusched.record.catalogue import has
from gpusched.record.chunk import LazyChunk, chunks_in, compute, is_scalar, recorder_of
from gpusched.record.handlers import axis_of, records, records_method, records_special
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
    _must_be_own(recorder, out, name)
    by_element = isinstance(function, np.ufunc) and function.signature is None
    if has(function, "early") or (isinstance(function, np.ufunc) and not by_element):
        _check_apart(out, name, (args, kwargs))
    if where is not True:
        args = tuple(_guarded(recorder, each, where) for each in args)
    found = function(*args, **kwargs)
    if not by_element and np.shape(found) != out.shape:
        recorder.stop(GraphBreak.CHANGES(f"calls {name} with out= of another shape"))
    recorder.asks(out, *args)
    # Functions of other kinds compute in the dtype of what they write to.
    casting = "same_kind" if isinstance(function, np.ufunc) else "no"
    _write(out, found, where, casting)
    return out


def _must_be_own(recorder: Recorder, array: Any, name: str) -> None:
    """End the recording if a call changes something else than an array of the function's own."""
    if type(array) is not LazyChunk:
        recorder.stop(GraphBreak.CHANGES(f"calls {name}, which may change its arguments"))
    if not array.whole._fresh or not array.shape:
        recorder.stop(GraphBreak.CHANGES("changes a chunk in place"))


def _check_apart(array: LazyChunk, name: str, given: Any) -> None:
    """End the recording if a call reads what it writes to, as NumPy's result depends on when."""
    if any(each.whole is array.whole for each in chunks_in(given)):
        recorder_of(array).stop(GraphBreak.CHANGES(f"calls {name}, which writes to what it reads"))


def _guarded(recorder: Recorder, value: Any, mask: Any) -> Any:
    """Return an operand with ones where a mask chooses nothing."""
    if type(value) not in (LazyChunk, np.ndarray):
        return value
    if value.dtype.kind not in "biufc":
        recorder.stop(GraphBreak.DTYPE(f"dtype {value.dtype}"))
    return np.where(mask, value, value.dtype.type(1))


def _write(array: LazyChunk, value: Any, mask: Any = True, casting: Any = "same_kind") -> None:
    """Record that an array has another value from now on, or where a mask chooses its elements.

    It was the function's own before the value was computed (`_must_be_own`), and is so again.
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
    array._node = new._node
    changed(recorder, array)


_SCALARS = {np.dtype(code).type for code in "?bhilqBHILQefdFD"}


def _kind(value: Any) -> int:
    """Return a number of a value's kind, which NumPy writes to arrays of the same or a larger."""
    return "biufc".index(np.result_type(value).kind)


@records(np.copyto, traits=("changes",))
def _copied(recorder: Recorder, dst: Any, src: Any, casting: Any = "same_kind",
            where: Any = True) -> None:  # fmt: skip
    _must_be_own(recorder, dst, "copyto")
    _write(dst, src, where, casting)


@records(np.putmask, traits=("changes",))
def _put(recorder: Recorder, a: Any, mask: Any, values: Any) -> None:
    if np.shape(values) in ((), np.shape(a)) and np.shape(mask) == np.shape(a):
        _must_be_own(recorder, a, "putmask")
        return _write(a, values, mask, "safe")
    return _on_a_copy(np.putmask, recorder, a, mask, values)


def _on_a_copy(function: Callable[..., Any], /, recorder: Recorder, array: Any, *args: Any,
               **kwargs: Any) -> None:  # fmt: skip
    """Record a call that changes an array: the array is a changed copy from now on."""
    _must_be_own(recorder, array, function.__name__)
    if has(function, "early"):
        _check_apart(array, function.__name__, (args, kwargs))
    recorder.broke(function.__name__, GraphBreak.NO_KERNEL("no kernel for this function"))
    found = compute(recorder, partial(_changed, function), (array, *args), kwargs)
    array._node = found._node
    changed(recorder, array)


def _changed(function: Callable[..., Any], array: np.ndarray, *args: Any, **kwargs: Any) -> Any:
    """Return a copy of an array that a function has changed."""
    found = array.copy(order="K")
    function(found, *args, **kwargs)
    return found


for _function in (np.fill_diagonal, np.place, np.put, np.put_along_axis):
    records(_function, traits=("changes",))(partial(_on_a_copy, _function))


@records_method("fill")
def _fill(recorder: Recorder, array: LazyChunk, value: Any) -> None:
    if np.shape(value):
        recorder.stop(GraphBreak.CHANGES("fills an array with several values"))
    _must_be_own(recorder, array, "fill")
    _write(array, value, casting="unsafe")


@records_method("sort")
def _sort(recorder: Recorder, array: LazyChunk, axis: Any = -1, kind: Any = None) -> None:
    axis = axis_of(axis, array.ndim)
    _must_be_own(recorder, array, "sort")
    _write(array, np.sort(array, axis=axis, kind=kind))


@records_method("partition")
def _partition(recorder: Recorder, array: LazyChunk, kth: Any, axis: Any = -1) -> None:
    axis = axis_of(axis, array.ndim)
    _must_be_own(recorder, array, "partition")
    _write(array, np.partition(array, kth, axis=axis))
