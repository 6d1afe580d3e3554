"""Which kernels an image holds: what the driver asks when a module is loaded.

Images are those that this package made in the place of cubins (`cupy_kernels`), and cubins of
numba-cuda's, which are never read: their digest leads to the LLVM IR that they were made from.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import sys
import threading
import traceback
from typing import Any, Protocol

from . import cupy_kernels, emulator

_MOST_ARGUMENTS = 120
_INVALID_IMAGE, _NO_BINARY, _NOT_FOUND = 200, 209, 500


class Function(ctypes.Structure):
    """The driver's `function`: how a kernel runs and what it takes."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("count", ctypes.c_int),
        ("barriers", ctypes.c_int),
        ("sizes", ctypes.c_int * _MOST_ARGUMENTS),
        ("most_threads", ctypes.c_int),
        ("name", ctypes.c_char * 512),
    )


class Module(Protocol):
    """The kernels of one image."""

    def fill(self, name: str, found: Any) -> bool:
        """Describe a kernel in `found`; return False if there is none of that name."""


_modules: list[Module] = []
_lock = threading.RLock()  # llvmlite's, too: it links and compiles one module at a time.


def install() -> None:
    """Answer the driver from now on."""
    emulator.driver.emulator_set_resolver(_load, _find)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
def _load(image: int, number: Any) -> int:
    try:
        with _lock:
            module = _module(image)
            if module is None:
                return _NO_BINARY
            _modules.append(module)
            number[0] = len(_modules) - 1
        return 0
    except Exception:  # noqa: BLE001  The driver's caller is C, which takes numbers only.
        traceback.print_exc()
        return _INVALID_IMAGE


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(Function))
def _find(number: int, name: bytes, found: Any) -> int:
    try:
        return 0 if _modules[number].fill(name.decode(), found.contents) else _NOT_FOUND
    except Exception:  # noqa: BLE001  As above.
        traceback.print_exc()
        return _NOT_FOUND


def _module(image: int) -> Module | None:
    if ctypes.string_at(image, len(cupy_kernels.MAGIC)) == cupy_kernels.MAGIC:
        return cupy_kernels.Module(ctypes.string_at(image + len(cupy_kernels.MAGIC)).decode())
    from . import numba_kernels  # With LLVM, which not every process needs.

    data = ctypes.string_at(image, _elf_size(image))
    path = numba_kernels.path(digest(data))
    if not path.exists():
        print(f"emulated GPU: nothing is known of the cubin {digest(data)}", file=sys.stderr)
        return None
    return numba_kernels.Module(path.read_text())


def digest(cubin: bytes) -> str:
    """Return the name of a cubin."""
    return hashlib.blake2b(cubin, digest_size=16).hexdigest()


def _elf_size(image: int) -> int:
    """Return the bytes of an ELF file in memory, whose length the driver's caller does not give."""
    header = ctypes.string_at(image, 64)
    program, section = struct.unpack_from("<QQ", header, 32)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", header, 54)
    end = max(section + section_size * sections, program + program_size * programs)
    for number in range(sections):
        entry = ctypes.string_at(image + section + number * section_size, 64)
        kind = struct.unpack_from("<I", entry, 4)[0]
        offset, size = struct.unpack_from("<QQ", entry, 24)
        if kind != 8:  # SHT_NOBITS takes no room in the file.
            end = max(end, offset + size)
    return end
