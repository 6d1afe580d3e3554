"""Object files of the compiler's (ELF, x86-64) put into memory, so that their functions run.

A kernel's object file is small and stands alone: a few sections, a few hundred places to fill in
with addresses, and some functions of the C library. Bringing LLVM into a process for that takes
many times as long as doing it here.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import IS_X86

SUPPORTED = sys.platform == "linux" and IS_X86
"""Whether this machine runs such files."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_IDENTITY = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _EMPTY = 2, 4, 8
"""Kinds of sections."""
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4
"""Flags of sections."""
_UNDEFINED, _ABSOLUTE, _COMMON, _RESERVED = 0, 0xFFF1, 0xFFF2, 0xFF00
"""Where a symbol may be that is in no section; numbers from the last one on are no sections'."""
_LOCAL, _WEAK = 0, 2
"""How symbols are bound."""
_UNWINDING = ".eh_frame"
"""For exceptions and debuggers: kernels raise nothing."""


class ObjectError(ValueError):
    """An object file cannot be put into memory; the message says why."""


@dataclass(frozen=True)
class Section:
    """Part of a file."""

    name: str
    kind: int
    flags: int
    content: bytes
    size: int
    """Bytes in memory."""
    link: int
    """The section of names, or of symbols, that it refers to."""
    target: int
    """The section whose places its relocations are."""
    alignment: int

    @property
    def loaded(self) -> bool:
        """Whether it is in memory when the code runs."""
        return bool(self.flags & _ALLOCATED) and self.name != _UNWINDING


@dataclass(frozen=True)
class Symbol:
    """A name for a place."""

    name: str
    section: int
    """In which it is, or why in none."""
    value: int
    """Bytes from the section's start; the alignment of what has no section yet."""
    size: int
    binding: int


@dataclass(frozen=True)
class ObjectFile:
    """A file as it was read."""

    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[tuple[int, int, int, int, int], ...] = field(repr=False)
    """(section, place in it, kind, symbol, addend) of each."""

    @property
    def imports(self) -> list[str]:
        """Names of what it takes from elsewhere."""
        used = {symbol for _, _, _, symbol, _ in self.relocations}
        return sorted(
            s.name for k, s in enumerate(self.symbols) if k in used and s.section == _UNDEFINED
        )


def parsed(content: bytes) -> ObjectFile:
    """Return what is in an object file.

    Raises
    ------
    ObjectError
        If it is not one for this kind of machine, or not whole.
    """
    try:
        sections = _sections(content)
        symbols = _symbols(sections)
        return ObjectFile(sections, symbols, _relocations(sections, len(symbols)))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ObjectError(f"the object file is damaged: {error}") from error


def _sections(content: bytes) -> tuple[Section, ...]:
    found = _HEADER.unpack_from(content)
    identity, kind, machine, start = found[0], found[1], found[2], found[6]
    size, count, names = found[11:14]
    if not identity.startswith(_IDENTITY) or (kind, machine) != (_RELOCATABLE, _X86_64):
        raise ObjectError("not an object file for x86-64 Linux")
    if size != _SECTION.size:
        raise ObjectError("the object file's sections are of another form")
    read = [_SECTION.unpack_from(content, start + k * size) for k in range(count)]

    def body(fields: tuple[Any, ...]) -> bytes:
        if fields[1] == _EMPTY:
            return b""
        found = content[fields[4] : fields[4] + fields[5]]
        if len(found) != fields[5]:
            raise ObjectError("the object file was cut short")
        return found

    texts = body(read[names])
    return tuple(
        Section(_text(texts, f[0]), f[1], f[2], body(f), f[5], f[6], f[7], max(1, f[8]))
        for f in read
    )


def _text(texts: bytes, start: int) -> str:
    return texts[start : texts.index(b"\0", start)].decode()


def _symbols(sections: tuple[Section, ...]) -> tuple[Symbol, ...]:
    tables = [section for section in sections if section.kind == _SYMBOLS]
    if len(tables) != 1:
        raise ObjectError("an object file has one table of symbols")
    names = sections[tables[0].link].content
    return tuple(
        Symbol(_text(names, name), section, value, size, info >> 4)
        for name, info, _, section, value, size in _SYMBOL.iter_unpack(tables[0].content)
    )


def _relocations(
    sections: tuple[Section, ...], symbols: int
) -> tuple[tuple[int, int, int, int, int], ...]:
    found = []
    for section in sections:
        if section.kind != _RELOCATIONS or not sections[section.target].loaded:
            continue
        room = sections[section.target].size
        for place, info, addend in _RELOCATION.iter_unpack(section.content):
            kind, symbol = info & 0xFFFFFFFF, info >> 32
            if symbol >= symbols or place + _WIDTHS.get(kind, room + 1) > room:
                raise ObjectError(f"a place of kind {kind} in {section.name} is not understood")
            found.append((section.target, place, kind, symbol, addend))
    return tuple(found)


_ABSOLUTE_64, _RELATIVE_32, _CALL, _UNSIGNED_32, _SIGNED_32, _RELATIVE_64 = 1, 2, 4, 10, 11, 24
"""Kinds of places (R_X86_64_64, _PC32, _PLT32, _32, _32S, _PC64)."""
_FORMS = {
    _ABSOLUTE_64: struct.Struct("<Q"), _RELATIVE_64: struct.Struct("<q"),
    _RELATIVE_32: struct.Struct("<i"), _CALL: struct.Struct("<i"),
    _UNSIGNED_32: struct.Struct("<I"), _SIGNED_32: struct.Struct("<i"),
}  # fmt: skip
_WIDTHS = {kind: form.size for kind, form in _FORMS.items()}
_RELATIVE = (_RELATIVE_32, _CALL, _RELATIVE_64)


class Image:
    """Code in memory, for as long as this object lives.

    Notes
    -----
    Memory is writable or executable, never both. Nothing may call the code when the image is gone.
    """

    def __init__(self, file: ObjectFile, resolve: Callable[[str], int]) -> None:
        """Put a file into memory.

        Parameters
        ----------
        file
            What `parsed` returned.
        resolve
            Returns the address of what the file imports, or raises an error.
        """
        places, common, executable, size = _layout(file)
        self._memory = mmap.mmap(-1, size)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for number, place in places.items():
            content = file.sections[number].content
            self._memory[place : place + len(content)] = content
        addresses = [
            self._address(k, symbol, places, common, resolve)
            for k, symbol in enumerate(file.symbols)
        ]
        self._fill(file, places, addresses)
        _protect(self._start, executable)
        self._symbols = {
            symbol.name: address
            for symbol, address in zip(file.symbols, addresses, strict=True)
            if symbol.binding != _LOCAL and address is not None
        }

    def defines(self, name: str) -> bool:
        """Return whether the file has a function or variable of that name."""
        return name in self._symbols

    def address(self, name: str) -> int:
        """Return where a function or variable of the file is.

        Raises
        ------
        ObjectError
            If it has none of that name.
        """
        if name not in self._symbols:
            raise ObjectError(f"the object file does not define {name}")
        return self._symbols[name]

    def _address(self, number: int, symbol: Symbol, places: dict[int, int],
                 common: dict[int, int], resolve: Callable[[str], int]) -> int | None:  # fmt: skip
        if symbol.section == _UNDEFINED:
            if not symbol.name:
                return None
            return 0 if symbol.binding == _WEAK else resolve(symbol.name)
        if symbol.section == _COMMON:
            return self._start + common[number]
        if symbol.section == _ABSOLUTE:
            return symbol.value
        place = places.get(symbol.section)
        return None if place is None else self._start + place + symbol.value

    def _fill(self, file: ObjectFile, places: dict[int, int], addresses: list[int | None]) -> None:
        for section, offset, kind, symbol, addend in file.relocations:
            known = addresses[symbol]
            if known is None:
                raise ObjectError("code refers to what is not in memory")
            place = places[section] + offset
            value = known + addend - (self._start + place if kind in _RELATIVE else 0)
            try:
                _FORMS[kind].pack_into(self._memory, place, value)
            except struct.error as error:
                raise ObjectError(f"{file.symbols[symbol].name} is too far away") from error


def _layout(file: ObjectFile) -> tuple[dict[int, int], dict[int, int], int, int]:
    """Return the places of sections and of variables without one, the code's end, and the size."""
    places: dict[int, int] = {}
    common: dict[int, int] = {}
    end = executable = 0
    # Code first, since pages of it are protected otherwise.
    loaded = [(k, s) for k, s in enumerate(file.sections) if s.loaded]
    for wanted in (True, False):
        for number, section in loaded:
            if bool(section.flags & _EXECUTABLE) is wanted:
                places[number] = end = _aligned(end, section.alignment)
                end += section.size
        if wanted:
            executable = end = _aligned(end, mmap.PAGESIZE)
    for number, symbol in enumerate(file.symbols):
        if symbol.section == _COMMON:
            common[number] = end = _aligned(end, max(1, symbol.value))
            end += symbol.size
    return places, common, executable, max(end, 1)


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


@lru_cache(maxsize=1)
def _c_library() -> Any:
    # Python's lock is kept: it takes longer to get it back, from a thread that computes.
    found = ctypes.PyDLL(None, use_errno=True)
    found.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return found


def _protect(start: int, size: int) -> None:
    """Make memory executable, and no longer writable."""
    if size and _c_library().mprotect(start, size, mmap.PROT_READ | mmap.PROT_EXEC):
        number = ctypes.get_errno()
        raise OSError(number, "the system does not let a process make code executable")
