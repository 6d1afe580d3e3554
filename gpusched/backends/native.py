"""Kernels' machine code loaded and called: no compiler, and nothing of numba's Python code.

Which functions outside it may call, by their names, is here too.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import sys
from functools import cache, lru_cache
from typing import Any

import numpy as np

from gpusched.backends import elf
from gpusched.store.handles import NativeKernel

RUN, CALL, NDARRAY, TILES = (
    f"gpusched.kernel.{name}" for name in ("run", "call", "ndarray", "tiles")
)
"""What kernels' machine code defines, the last one where there are rows; see
`gpusched.backends.entries`."""

HEAD = object.__basicsize__
"""Bytes in front of what an object of Python's holds."""
_FASTCALL = 0x80
"""Python's flag of C functions that take their arguments as an array."""


class UnknownCodeError(ValueError):
    """Bytes are not a kernel's machine code that runs here; the message says why."""


class UnknownSymbolError(ValueError):
    """Code calls a function that is not here, or that kernels must not call."""


_TILES = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


class _Method(ctypes.Structure):
    """How Python describes a C function."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("documentation", ctypes.c_char_p))  # fmt: skip


class _Code:
    """What the function of a kernel belongs to: lives as long as that."""

    def __init__(self, image: elf.Image, name: str) -> None:
        self.image = image
        self.method = _Method(name.encode(), image.address(CALL), _FASTCALL, None)


def load(code: bytes, name: str = "kernel") -> NativeKernel:
    """Return a kernel to call.

    Parameters
    ----------
    code
        What `gpusched.backends.cpu.compile_code` returned, perhaps in another process on
        the same kind of processor. It is run: it must come from where tasks may come from.
    name
        What tracebacks call it.

    Raises
    ------
    UnknownCodeError
        If it is no such code, or calls what is not here.
    """
    if not readable():
        raise UnknownCodeError("this Python's or NumPy's objects are of an unknown form")
    try:
        file = elf.parsed(code)
        image = elf.Image(file, address)
        made = _Code(image, name)
        ctypes.c_void_p.from_address(image.address(NDARRAY)).value = id(np.ndarray)
        # Python keeps `made` as the function's `__self__`, and with it description and image.
        call = _new_function(ctypes.addressof(made.method), made, None)
        tiles = _TILES(image.address(TILES)) if image.defines(TILES) else None
        return NativeKernel(call, image.address(RUN), tiles)
    except (elf.ObjectError, UnknownSymbolError) as error:
        raise UnknownCodeError(f"code of a kernel: {error}") from error


_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))


@lru_cache(maxsize=1)
def readable() -> bool:
    """Return whether arrays' fields are where machine code looks for them."""
    array = np.arange(3.0)[1:]
    expected = (array.ctypes.data, 1, 2, id(array.dtype), array.flags.num, np.dtype(float).num)
    if not isinstance(array, np.ndarray) or array.__class__.__basicsize__ < HEAD + 52:
        return False
    start, dtype = id(array), id(array.dtype)
    shape = ctypes.c_void_p.from_address(start + HEAD + 16).value
    found = (
        ctypes.c_void_p.from_address(start + HEAD).value,
        ctypes.c_int32.from_address(start + HEAD + 8).value,
        shape and ctypes.c_int64.from_address(shape).value,
        ctypes.c_void_p.from_address(start + HEAD + 40).value,
        ctypes.c_int32.from_address(start + HEAD + 48).value,
        ctypes.c_int32.from_address(dtype + HEAD + 12).value,
    )
    order = ctypes.c_char.from_address(dtype + HEAD + 10).value
    return found == expected and order == b"="


# Symbols ------------------------------------------------------------------------------

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
"""How names begin of what only a process with a running numba has; see `is_known`."""


def is_known(name: str) -> bool:
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
    >>> from gpusched.backends.native import address
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
