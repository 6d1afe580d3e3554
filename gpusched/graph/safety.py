"""Shows that a user's own function may be given lazy chunks, from its bytecode.

A function is safe if it only calls NumPy functions that can be recorded, and functions that are
safe themselves; reads array attributes known without computing; and changes nothing in place.
What it decides from values is no danger: asking a lazy chunk for its value is noticed, and the
run is then not repeated from a plan.  Nor are ``x += y`` and ``out=``: a lazy chunk refuses where
that would change an input.
"""

from __future__ import annotations

import dis
import types
from functools import lru_cache
from typing import Any

import numpy as np

from gpusched.fusion.backends.names import DTYPES
from gpusched.fusion.chunk import HANDLERS, METHODS
from gpusched.fusion.operations import operation_of
from gpusched.fusion.recorded import Freezable

_ATTRIBUTES = frozenset(
    [
        "shape",
        "dtype",
        "ndim",
        "size",
        "T",
        "astype",
        "real",
        "newaxis",
        "pi",
        "e",
        "inf",
        "nan",
        "errstate",
    ]
)
_DTYPES = frozenset([*DTYPES, "bool_"])
_BUILTINS = {abs, float, int, bool, len, range, slice, tuple, zip, enumerate, round, pow}
_CONSTANTS = (bool, int, float, str, type(None), type(Ellipsis), np.generic, np.dtype)

_FORBIDDEN = ("STORE_SUBSCR", "DELETE_", "STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "IMPORT_",
              "MAKE_FUNCTION", "YIELD_", "SEND", "GET_AWAITABLE", "STORE_SLICE", "LOAD_BUILD_CLASS",
              "LOAD_NAME", "LOAD_CLASSDEREF")  # fmt: skip


_LIBRARIES = frozenset(["dask", "distributed", "xarray", "numpy"])
"""Packages whose functions are recorded only if `known` lists them."""


LIBRARY = "a library's own function"
"""The reason given for functions of packages, which are not the user's to change."""


class _Unsafe(Exception):
    """Carries why a function was not shown to be safe."""


def why_unsafe(function: Any) -> str | None:
    """Return why `function` is not shown to be safe for lazy chunks, or None if it is.

    Examples
    --------
    >>> why_unsafe(lambda x: np.exp(x[1:] - x[:-1]).sum(axis=0)) is None
    True
    >>> def first_is_zero(x):
    ...     x[0] = 0
    ...     return x
    >>> why_unsafe(first_is_zero)
    'does what cannot be recorded (store_subscr)'
    """
    try:
        captured(function)
    except _Unsafe as reason:
        return str(reason)
    return None


def captured(function: Any, callers: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return the values a safe function reads from outside; a plan holds for these only.

    Parameters
    ----------
    function
        The function.
    callers
        Those that it is called by.

    Returns
    -------
    tuple
        Of names, each with what it stands for.

    Raises
    ------
    _Unsafe
        With the reason, for a function that is not shown to be safe.
    """
    if not isinstance(function, types.FunctionType):
        raise _Unsafe(LIBRARY)
    if (function.__module__ or "").partition(".")[0] in _LIBRARIES:
        raise _Unsafe(LIBRARY)
    if function in callers:
        raise _Unsafe(f"calls {function.__name__}, which calls itself through others")
    reason, names = _examine(function.__code__)
    if reason:
        raise _Unsafe(reason)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    found = [(name, _outside(function, name, cells, (*callers, function))) for name in names]
    found += [("a default", _constant("a default", d)) for d in function.__defaults__ or ()]
    for name, default in (function.__kwdefaults__ or {}).items():
        found.append((name, _constant("a default", default)))
    return tuple(found)


def _outside(function: types.FunctionType, name: str, cells: dict[str, Any],
             callers: tuple[Any, ...]) -> tuple[Any, ...]:  # fmt: skip
    """Return what depends on one name that a function takes from outside."""
    if name in cells:
        value = cells[name].cell_contents
    elif name in function.__globals__:
        value = function.__globals__[name]
    else:
        value = getattr(__import__("builtins"), name, None)
        if value not in _BUILTINS:
            raise _Unsafe(f"calls {name}")
        return ()
    if value is np:
        return ()
    if isinstance(value, types.FunctionType) and value is not function:
        return value.__code__, captured(value, callers)
    if isinstance(value, Freezable):
        return value.parts()
    if callable(value) and not isinstance(value, type):
        recorded = isinstance(value, np.ufunc) and operation_of(value) is not None
        if recorded or value in HANDLERS:
            return (value,)
        raise _Unsafe(f"calls {name}, which is not recorded")
    return _constant(name, value)


def _constant(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return tuple, *[_constant(name, item) for item in value]
    if isinstance(value, _CONSTANTS) or (isinstance(value, type) and issubclass(value, np.generic)):
        return type(value), repr(value)
    raise _Unsafe(f"uses {name}, a {type(value).__name__}")


@lru_cache(maxsize=1024)
def _examine(code: types.CodeType) -> tuple[str | None, tuple[str, ...]]:
    """Return why bytecode is unsafe, if it is, and the names it takes from outside."""
    names: list[str] = []
    for instruction in dis.get_instructions(code):
        operation = instruction.opname
        if operation.startswith(_FORBIDDEN):
            return f"does what cannot be recorded ({operation.lower()})", ()
        if operation in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"):
            names.append(str(instruction.argval))
        if operation in ("LOAD_ATTR", "LOAD_METHOD") and not _attribute(str(instruction.argval)):
            return f"uses .{instruction.argval}", ()
    return None, tuple(dict.fromkeys(names))


def _attribute(name: str) -> bool:
    """Return whether an attribute of that name, NumPy's or an array's, is safe."""
    if name in _ATTRIBUTES or name in _DTYPES or name in METHODS:
        return True
    found = getattr(np, name, None)
    if isinstance(found, np.ufunc):
        return operation_of(found) is not None
    return callable(found) and not isinstance(found, type) and found in HANDLERS
