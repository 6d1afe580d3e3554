"""Kernels' machine code loaded and called: no compiler, and nothing of numba's."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np

from gpusched.backends import elf, symbols
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
        image = elf.Image(file, symbols.address)
        made = _Code(image, name)
        ctypes.c_void_p.from_address(image.address(NDARRAY)).value = id(np.ndarray)
        # Python keeps `made` as the function's `__self__`, and with it description and image.
        call = _new_function(ctypes.addressof(made.method), made, None)
        tiles = _TILES(image.address(TILES)) if image.defines(TILES) else None
        return NativeKernel(call, image.address(RUN), tiles)
    except (elf.ObjectError, symbols.UnknownSymbolError) as error:
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
