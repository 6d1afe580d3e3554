"""Kernels' machine code loaded and called: no compiler, and nothing of numba's."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from gpusched.backends import elf, symbols
from gpusched.emit.generate import arguments
from gpusched.emit.kernel import Kernel
from gpusched.store.handles import NativeKernel

RUN, CALL, FILL, NDARRAY, TILES = (
    f"gpusched.kernel.{name}" for name in ("run", "call", "fill", "ndarray", "tiles")
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
    """What the functions of one kernel belong to: lives as long as any of them."""

    def __init__(self, image: elf.Image, name: str) -> None:
        self.image = image
        self.methods = [
            _Method(name.encode(), image.address(symbol), _FASTCALL, None)
            for symbol in (CALL, FILL)
        ]


_WORDS = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B",
          "uint16": "H", "uint32": "I", "uint64": "Q", "float32": "d", "float64": "d"}  # fmt: skip
"""How `struct` writes a number of a dtype; with zeros behind it, as a word of 64 bits."""


def numbers(kernel: Kernel) -> struct.Struct:
    r"""Return what makes bytes of the numbers that a kernel's machine code is passed.

    Examples
    --------
    >>> from gpusched.backends.native import numbers
    >>> from gpusched.emit.kernel import Kernel
    >>> numbers(Kernel((), ("int8",), (), (), ("map",))).pack(-1, 2)
    b'\xff\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00'
    """
    words = [_WORDS[dtype] for dtype in kernel.parameters]
    words += "q" * (len(arguments(kernel)) - len(kernel.operands) - len(words))
    filled = (f"{word}{8 - struct.calcsize(f'<{word}')}x" for word in words)
    return struct.Struct(f"<{''.join(filled)}")


def load(code: bytes, kernel: Kernel) -> NativeKernel:
    """Return a kernel to call.

    Parameters
    ----------
    code
        What `gpusched.backends.cpu.compile_code` returned, perhaps in another process on
        the same kind of processor. It is run: it must come from where tasks may come from.
    kernel
        Of which it was made.

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
        made = _Code(image, kernel.name)
        ctypes.c_void_p.from_address(image.address(NDARRAY)).value = id(np.ndarray)
        call, fill = (_function(made, method) for method in made.methods)
        tiles = _TILES(image.address(TILES)) if image.defines(TILES) else None
        pack, arrays = numbers(kernel).pack, len(kernel.operands)
        return NativeKernel(call, fill, image.address(RUN), tiles, pack, arrays)
    except (elf.ObjectError, symbols.UnknownSymbolError) as error:
        raise UnknownCodeError(f"code of a kernel: {error}") from error


def _function(code: _Code, method: _Method) -> Any:
    # Python keeps `code` as the function's `__self__`, and with it the description and the image.
    return _new_function(ctypes.addressof(method), code, None)


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
