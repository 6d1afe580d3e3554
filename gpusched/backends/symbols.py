"""Functions outside that kernels' machine code may call, by name."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import sys
from functools import cache
from typing import Any

PYTHON = frozenset([
    "PyErr_Format", "PyErr_Occurred", "PyErr_SetString", "PyEval_RestoreThread",
    "PyEval_SaveThread", "PyExc_OverflowError", "PyExc_RuntimeError", "PyExc_TypeError",
    "PyFloat_AsDouble", "PyLong_AsLongLong", "PyLong_AsUnsignedLongLong", "PyLong_FromLongLong",
    "PyNumber_Index", "PyObject_IsTrue", "PyType_IsSubtype", "Py_DecRef",
])  # fmt: skip
"""What entries use of Python (see `gpusched.backends.entries`)."""

_NUMBA = "numba_"
_NUMBERS = frozenset([
    "cpow", "cpowf", "fixed_fmod", "fixed_fmodf", "frexp", "frexpf", "gamma", "gammaf", "ldexp",
    "ldexpf", "lgamma", "lgammaf", "nextafter", "nextafterf", "round", "roundf",
])  # fmt: skip
"""Scalar functions in numba's own C library, which needs nothing of numba's Python code."""

_NEVER_CALLED = frozenset(["NRT_MemInfo_call_dtor"])
"""What only ends arrays that numba has counted. Kernels are given none, and what would make some is
not known here; the code that looks stays all the same."""

_FOREIGN = (_NUMBA, "NRT_", "Py", "_Py")
"""How names begin of what only a process with a running numba has; see `known`."""


class UnknownSymbolError(ValueError):
    """Code calls a function that is not here, or that kernels must not call."""


def known(name: str) -> bool:
    """Return whether code that calls a function of this name can be loaded."""
    try:
        address(name)
    except UnknownSymbolError:
        return False
    return True


@cache
def address(name: str) -> int:
    """Return where a function is.

    Raises
    ------
    UnknownSymbolError
        If it is not here, or not a kernel's to call.

    Examples
    --------
    >>> from gpusched.backends.symbols import address
    >>> address("sin") > 0
    True
    """
    if name in _NEVER_CALLED:
        found = _in(_c_libraries(), "abort")
    elif name.startswith(_NUMBA):
        found = _of_numba(name.removeprefix(_NUMBA))
    elif name in PYTHON:
        found = _in([ctypes.pythonapi], name)
    else:
        found = None if name.startswith(_FOREIGN) else _in(_c_libraries(), name)
    if found is None:
        raise UnknownSymbolError(f"code of a kernel calls {name}, which is not known here")
    return found


def _in(libraries: list[Any], name: str) -> int | None:
    for library in libraries:
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(library, name))
        except ValueError:
            continue
    return None


@cache
def _c_libraries() -> list[Any]:
    """Return the libraries of C and its mathematics."""
    everything = ctypes.CDLL(None)
    try:
        return [ctypes.CDLL("libm.so.6"), everything]
    except OSError:
        return [everything]  # Not glibc: one library has all.


def _of_numba(name: str) -> int | None:
    found = _numba_functions().get(name) if name in _NUMBERS else None
    return None if found is None else int(found)


@cache
def _numba_functions() -> dict[str, int]:
    """Return the functions of numba's C library, which is loaded without numba."""
    name = "numba._helperlib"
    if name in sys.modules:
        return dict(sys.modules[name].c_helpers)
    package = importlib.util.find_spec("numba")
    places = list(package.submodule_search_locations or ()) if package else []
    found = importlib.machinery.PathFinder.find_spec(name, places)
    if found is None:
        return {}
    module = importlib.util.module_from_spec(found)
    # It is numba's to import, as part of its package.
    sys.modules.pop(name, None)
    return dict(module.c_helpers)
