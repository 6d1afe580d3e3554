"""What functions that are recorded read instead of some of Python's and NumPy's functions.

A lazy chunk stands for an array of NumPy's, or for one of its scalars, and `isinstance` and
`numpy.asarray` see that it is neither. What stands in for them answers for what the chunk stands
for, and does for anything else what Python and NumPy do. Where chunks are of another library to the
program, it ends the recording.

What is computed of numbers, and of no chunk, is computed once, while a function is recorded. NumPy
then may not warn: it would for each chunk. A warning that has a line of the user's, or one of this
module, ends the recording (`WARNS`); what may have one of a module of NumPy's is not computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn
from weakref import ref

import numpy as np

from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.dtypes import SUPPORTED
from gpusched.graph.safety.kinds import ATTRIBUTES, PLAIN
from gpusched.plan.expression import UnrecordableError
from gpusched.record.catalogue import has
from gpusched.record.chunk import (
    LackingError,
    LazyChunk,
    chunks_in,
    is_scalar,
    node_of,
    recorder_of,
)
from gpusched.record.handlers import DISPATCHED
from gpusched.record.lane import FOREIGN, Lane, array_of_lanes, filled, lanes_in, like_lane
from gpusched.record.picked import length
from gpusched.record.record import Recorder

WARNS = "a function that is recorded warns"
"""What Python reads of the module that a warning is of: with no dictionary it raises instead."""
__warningregistry__ = WARNS


def stand_in(function: Any, recorder: Recorder, tables: bool = False) -> Any:
    """Return what a function that is recorded reads instead of one of Python's or NumPy's.

    It keeps no recorder, and with it no arrays: functions hold each other until they are collected.
    With `tables`, arrays that are made without a chunk are lazy chunks, which others may index.
    """
    if function is AttributeError:
        return LackingError
    if any(function is each for each in _FILLING):
        return partial(_filled, ref(recorder), function)
    make = _STANDING.get(id(function))
    if make is None and type(function) is DISPATCHED and function not in _ASKING:
        make = _of_chunks
    if make is None:
        return function
    made = partial(make, function)
    return partial(_tabled, ref(recorder), made) if tables and make in _MAKING else made


def _refuse(reason: Reason) -> NoReturn:
    raise UnrecordableError(reason)


def _refuse_parts(value: Any) -> None:
    """Refuse what is taken of lanes: of what type it is, it does not say for what stands there."""
    if type(value) in FOREIGN:
        _refuse(GraphBreak.OWN_DECIDES("asks of what type elements of lanes, or lengths, are"))


def _is_instance(function: Any, value: Any, types: Any) -> bool:
    del function
    _refuse_parts(value)
    if callable(value) and not isinstance(value, type):
        _refuse(GraphBreak.OWN_DECIDES("asks of what type a function is"))
    lazy = type(value) in (LazyChunk, Lane)
    return issubclass(_type(value), types) if lazy else isinstance(value, types)


def _type(value: Any) -> Any:
    """Return the type of a value, or of the array that a lazy chunk stands for."""
    if type(value) is Lane:
        return np.ndarray if value.ndim else value.dtype.type
    if type(value) is not LazyChunk:
        return type(value)
    return value.dtype.type if is_scalar(_numpys(value)) else np.ndarray


def _length(function: Any, value: Any) -> Any:
    del function
    return length(value)


def _asked_type(function: Any, value: Any) -> Any:
    """Return the type of a value, or of what a lazy chunk stands for."""
    _refuse_parts(value)
    if type(value) in (LazyChunk, Lane):
        return _type(value)
    if callable(value) and not isinstance(value, type):
        _refuse(GraphBreak.OWN_DECIDES("asks of what type a function is"))
    return function(value)


def _ask_attribute(function: Any, value: Any, name: str, *default: Any) -> Any:
    """Do what `getattr` or `hasattr` do, of the array that a lazy chunk stands for.

    What an attribute of others than plain values is, is their own affair; and a method is more than
    its value.
    """
    kind = type(value)
    if kind not in PLAIN and kind is not LazyChunk:
        _refuse(GraphBreak.OWN_ATTRIBUTE(f"asks a {kind.__name__} for .{name}"))
    like = _like(_numpys(value)) if kind is LazyChunk else value
    if function is getattr and hasattr(like, name):
        if name not in ATTRIBUTES:
            _refuse(GraphBreak.OWN_ATTRIBUTE(f"asks for .{name}"))
        like = value
    return function(like, name, *default)


def _like(chunk: LazyChunk) -> Any:
    """Return an array of a chunk's dtype and shape, or a scalar, that has what NumPy's have."""
    found = np.broadcast_to(np.zeros((), chunk.dtype), chunk.shape)
    return found[()] if is_scalar(chunk) else found


def _asked(function: Any, value: Any) -> bool:
    """Return what a function says of an array by its dtype and its shape alone."""
    _refuse_parts(value)
    if type(value) is Lane:
        value = like_lane(value)
    return bool(function(_like(_numpys(value)) if type(value) is LazyChunk else value))


def _as_array(value: Any, dtype: Any = None) -> Any:
    """Return the array that a lazy chunk stands for, in another dtype if it has not got that."""
    found = _numpys(value)
    if is_scalar(found):
        found = LazyChunk(recorder_of(found), node_of(found))
    return found if dtype is None else found.astype(dtype, copy=False)


def _array(value: Any, dtype: Any = None) -> Any:
    """Return an array of its own, of a lazy chunk or of a list of them."""
    found = _as_array(_stacked(value, dtype) if type(value) is list else value)
    return found.astype(found.dtype if dtype is None else dtype)


def _stacked(chunks: list[Any], dtype: Any) -> Any:
    """Return one array of lazy chunks, which `numpy.stack` lays out as `numpy.array` does.

    It is still to be converted, as `numpy.array` converts arrays. Scalars in a list it makes
    numbers of Python's first, which differs where the dtype does not have all values: it raises
    for integers, and rounds them twice; only from float to float both are the same.
    """
    first = next(each for each in chunks if type(each) is LazyChunk)
    alike = all(type(each) is LazyChunk and each.dtype == first.dtype for each in chunks)
    if not alike or any(each.ndim > 1 for each in chunks) or first.dtype not in SUPPORTED:
        reason = GraphBreak.VALUES("makes an array of arrays that are not alike, or have two axes")
        recorder_of(first).stop(reason)
    target = first.dtype if dtype is None else np.dtype(dtype)
    exact = target.kind == first.dtype.kind == "f" or np.can_cast(first.dtype, target, "safe")
    if any(is_scalar(each) for each in chunks) and not (exact and target in SUPPORTED):
        recorder_of(first).stop(GraphBreak.VALUES("makes an array of scalars in another dtype"))
    return np.stack([_numpys(each) for each in chunks])


def _chunks(structure: Any) -> bool:
    """Return whether there is a chunk, or lanes of one, in a structure."""
    return bool(chunks_in(structure)) or lanes_in(structure)


def _numpys(chunk: LazyChunk) -> LazyChunk:
    """Return a lazy chunk, if what it stands for is NumPy's to the program."""
    recorder = recorder_of(chunk)
    if not (recorder.device.can.host_memory or recorder.moved):
        recorder.stop(GraphBreak.VALUES("asks whether a chunk of another library is NumPy's"))
    return chunk


def _converted(function: Callable[..., Any], value: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what a function makes of an array, or of a list of them."""
    if type(value) is Lane or (type(value) in (list, tuple) and lanes_in(value)):
        if len(args) + len(kwargs) > 1 or not kwargs.keys() <= {"dtype"}:
            _refuse(GraphBreak.OWN_ARGUMENTS("makes an array of lanes with more than a dtype"))
        dtype = args[0] if args else kwargs.get("dtype")
        return array_of_lanes(value, dtype, copy=function is np.array)
    listed = function is np.array and type(value) is list
    if not any(type(each) is LazyChunk for each in (value if listed else (value,))):
        return function(value, *args, **kwargs)
    if len(args) + len(kwargs) > 1 or not kwargs.keys() <= {"dtype"} or chunks_in((args, kwargs)):
        _refuse(GraphBreak.OWN_ARGUMENTS("makes an array of one with more than a dtype"))
    return (_array if function is np.array else _as_array)(value, *args, **kwargs)


_FILLING = (np.empty, np.full, np.ones, np.zeros)
"""What they make is an array of one number, and may be written to as one that is made of chunks."""


def _filled(recording: Callable[[], Any], function: Callable[..., Any], shape: Any, *args: Any,
            **kwargs: Any) -> LazyChunk:  # fmt: skip
    """Return a lazy chunk of the array that such a function makes."""
    recorder = recording()
    many = len(args) > 1 + (function is np.full) or not kwargs.keys() <= {"dtype", "fill_value"}
    if many or _chunks((shape, args, kwargs)):
        recorder.stop(GraphBreak.OWN_ARGUMENTS(f"calls {function.__name__} with other arguments"))
    typed = function is np.full and (len(args) > 1 or "dtype" in kwargs)
    fill: Any = args[0] if args else kwargs.get("fill_value")
    if typed and np.iscomplexobj(fill):
        recorder.stop(GraphBreak.OPERAND("converts complex numbers, of which NumPy may warn"))
    try:
        one = function((), *args, **kwargs)
    except ValueError:
        recorder.stop(GraphBreak.OPERAND("makes an array of several numbers"))
    if one.dtype not in SUPPORTED:
        recorder.stop(GraphBreak.DTYPE(f"makes an array of dtype {one.dtype}"))
    number = 0 if function is np.empty else one[()]
    lengths = np.broadcast_to(one, shape).shape  # As NumPy takes it, or refuses it.
    return filled(recorder, number, lengths, one.dtype)


def _of_numbers(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what a function makes of numbers that no chunk decides."""
    if _chunks((args, kwargs)):
        _refuse(GraphBreak.OWN_DECIDES(f"calls {function.__name__} with values of a chunk"))
    if function is np.linspace and (len(args) > 3 or not kwargs.keys() <= {"num", "endpoint"}):
        _refuse(GraphBreak.OWN_ARGUMENTS("calls linspace with more than it begins and ends with"))
    return function(*args, **kwargs)


def _tabled(recording: Callable[[], Any], function: Callable[..., Any], /, *args: Any,
            **kwargs: Any) -> Any:  # fmt: skip
    """Return what a function makes as a lazy chunk, if it is an array that kernels can have."""
    found = function(*args, **kwargs)
    if type(found) is not np.ndarray or found.dtype not in SUPPORTED:
        return found
    recorder = recording()
    return LazyChunk(recorder, recorder.constant(found), fresh=True)


def _of_chunks(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what a function makes of chunks, or of numbers if it does not warn of any."""
    plain = _is_quiet(function) and len(args) <= 2 and kwargs.keys() <= {"axis"}
    if not (plain or function in _OF_PLACES or _chunks((args, kwargs))):
        _refuse(GraphBreak.OWN_ARGUMENTS(f"calls {function.__name__} without a chunk"))
    return function(*args, **kwargs)


_ASKING = {np.can_cast, np.iscomplexobj, np.isrealobj, np.min_scalar_type, np.ndim, np.result_type,
           np.shape, np.size}  # fmt: skip
"""NumPy's functions that compute nothing."""
_OF_PLACES = {np.broadcast_arrays, np.diag_indices_from, np.ix_, np.meshgrid, np.ravel_multi_index,
              np.tril_indices_from, np.triu_indices_from, np.unravel_index}  # fmt: skip
"""Those that make places, and arrangements of numbers, whatever they are asked for."""
_WARNING = {np.full_like, np.mean, np.median, np.nanargmax, np.nanargmin, np.nanmax, np.nanmean,
            np.nanmedian, np.nanmin, np.nanpercentile, np.nanquantile, np.nanstd, np.nanvar,
            np.percentile, np.quantile, np.std, np.var}  # fmt: skip
"""Those that warn of nothing to compute with, or of what they convert."""


def _is_quiet(function: Any) -> bool:
    """Return whether a function warns of nothing but errors of floats, if asked for no dtype."""
    traits = ("elementwise", "fresh", "moves", "view")
    return function not in _WARNING and any(has(function, trait) for trait in traits)


_STANDING: dict[int, Callable[..., Any]] = {
    id(function): make
    for make, functions in (
        (_ask_attribute, (getattr, hasattr)),
        (_length, (len,)),
        (_asked_type, (type,)),
        (_is_instance, (isinstance,)),
        (_asked, (np.isscalar, np.iterable)),
        (_converted, (np.array, np.asanyarray, np.asarray)),
        (_of_numbers, (np.arange, np.eye, np.identity, np.indices, np.linspace)),
    )
    for function in functions
}
"""By the identity of a function, what stands in for it, and is given the function first."""
_MAKING = (_converted, _of_numbers)
"""Of these, what makes arrays without a chunk."""
