"""NumPy's functions that are written in Python, of others that are recorded.

Their own code runs on lazy chunks, so that its result is NumPy's in each release: it reads other
functions instead of those that make an array of what they are given.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import UnfusibleError
from gpusched.record.bytecode import looked_up
from gpusched.record.chunk import LazyChunk, chunks_in
from gpusched.record.handlers import DISPATCHED, records
from gpusched.record.lane import RULES, Lane, array_of_lanes
from gpusched.record.record import Recorder

_FUNCTIONS = (np.append, np.array_split, np.column_stack, np.cumulative_prod,
              np.cumulative_sum, np.dsplit, np.dstack, np.hsplit, np.hstack, np.isneginf,
              np.isposinf, np.matrix_transpose, np.outer, np.polyval, np.ptp, np.rot90, np.sinc,
              np.split, np.trapezoid, np.tril, np.triu, np.unstack, np.unwrap, np.vsplit,
              np.vstack, np.linalg.matrix_transpose, np.linalg.outer)  # fmt: skip


def _as_array(value: Any, dtype: Any = None, *, copy: Any = None, subok: bool = False,
              ndmin: int = 0, plain: Any = np.asarray) -> Any:  # fmt: skip
    """Return a lazy chunk as the array that it stands for; of others what NumPy makes of them."""
    if type(value) is Lane and value.ndim == 0 and dtype is None and plain is not np.array:
        return value  # Such functions write to no numbers of lanes.
    if type(value) is Lane:
        return array_of_lanes(value, dtype, copy=plain is np.array and copy is not None)
    if not isinstance(value, LazyChunk):
        options = {"copy": copy, "subok": subok, "ndmin": ndmin} if plain is np.array else {}
        return plain(value, dtype, **options)
    wanted = value.dtype if dtype is None else np.dtype(dtype)
    found = value.astype(wanted, copy=plain is np.array and copy is not None)
    return found[(None,) * (ndmin - found.ndim)] if ndmin > found.ndim else found


_INSTEAD: dict[Any, Callable[..., Any]] = {
    np.array: functools.partial(_as_array, plain=np.array),
    np.asanyarray: functools.partial(_as_array, plain=np.asanyarray),
    np.asarray: functools.partial(_as_array, plain=np.asarray),
}
_NUMPY = "numpy."


@functools.cache
def _module(module: types.ModuleType) -> types.ModuleType:
    """Return one of NumPy's modules as its functions are to read it."""
    found = types.ModuleType(module.__name__)
    vars(found).update(vars(module))
    for function, instead in _INSTEAD.items():
        name = function.__name__
        if vars(module).get(name) is function:
            setattr(found, name, instead)
    return found


@functools.cache
def _read(function: types.FunctionType) -> types.FunctionType:
    """Return one of NumPy's functions reading what is to be there instead."""
    names = {
        name: _seen(function.__globals__[name])
        for name in looked_up(function.__code__)
        if name in function.__globals__
    }
    # What is compiled looks for them where it imports, as the methods of arrays do.
    names["__builtins__"] = vars(builtins)
    made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__,
                              function.__closure__)  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _seen(value: Any) -> Any:
    """Return what such a function reads instead of a value of its module's."""
    kind = type(value)
    if kind is types.ModuleType and f"{value.__name__}.".startswith(_NUMPY):
        return _module(value)
    if kind is types.FunctionType and str(value.__module__).startswith(_NUMPY):
        return _read(value)
    known = kind in (types.BuiltinFunctionType, DISPATCHED)
    return _INSTEAD.get(value, value) if known else value


def _record(function: Any, needed: str = "", settled: str = "") -> None:
    """Have one of NumPy's functions recorded by its own code, without results to write to.

    `needed` is an option without which it does something else that no kernel does, and `settled`
    one whose values decide what it does.
    """
    plain = inspect.unwrap(function)
    given = [p for p in inspect.signature(plain).parameters.values() if p.name != "out"]

    def handler(recorder: Recorder, *args: Any, **options: Any) -> Any:
        for chunk in chunks_in((args, options)):
            if not chunk.shape or chunk.dtype.kind not in "biuf":
                raise UnfusibleError(GraphBreak.DTYPE, "no array of real numbers")
        arguments = inspect.signature(plain).bind(*args, **options).arguments
        if needed and arguments.get(needed) is None:
            raise UnfusibleError(GraphBreak.OPTION, f"no option {needed}")
        if isinstance(arguments.get(settled), LazyChunk):
            raise UnfusibleError(GraphBreak.VALUES, f"{settled} that decide")
        return _read(plain)(*args, **options)

    own = inspect.Parameter("recorder", inspect.Parameter.POSITIONAL_ONLY)
    handler.__signature__ = inspect.Signature([own, *given])  # type: ignore[attr-defined]
    records(function)(handler)


def _of_lanes(lane: Lane, function: Any, args: Any, kwargs: Any) -> Any:
    """Return what the code of such a function makes of lanes."""
    del lane
    return _read(inspect.unwrap(function))(*args, **kwargs)


for _function in _FUNCTIONS:
    _record(_function)
    RULES.setdefault(_function, _of_lanes)
RULES[np.average] = RULES[np.linalg.norm] = _of_lanes
_record(np.linalg.norm, needed="axis")
_record(np.average, settled="weights")


@records(np.fix)
def _fix(recorder: Recorder, x: Any) -> Any:
    """Record numbers rounded towards zero, which NumPy's releases do in two ways."""
    return np.trunc(x)
