"""Dtypes as plain data, which needs no pickle."""

from __future__ import annotations

import importlib
import math
import re
from typing import Any, NamedTuple

import numpy as np

from gpusched.serialization.frames import CorruptFrameError

_EXTENSIONS = "ml_dtypes"
"""The library of bfloat16 and other small floats; JAX and TensorFlow bring it."""
_DEEPEST = 32
_LARGEST = 1 << 30
"""Bytes of an element. NumPy adds sizes and offsets up in C's int, which overflows at 2 GiB."""
_SIMPLE = frozenset("biufcmMSUV")
_WRITTEN = re.compile(r"[<>|][biufcmMSUV](\d{1,10})(\[(\d{0,10})[a-zA-Zμ]+\])?")
"""How NumPy writes a simple dtype: its size, and for times how many of which unit."""


def is_plain(dtype: np.dtype) -> bool:
    """Return whether a dtype can be described: no Python objects, metadata or unknown types.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.dtypes import is_plain
    >>> is_plain(np.dtype([("x", "f4"), ("y", ">i2", 3)])), is_plain(np.dtype(object))
    (True, False)
    """
    if dtype.hasobject or dtype.metadata or not 0 < dtype.itemsize <= _LARGEST:
        return False
    if dtype.subdtype is not None:
        return is_plain(dtype.base)
    if dtype.fields is not None:
        return dtype.type is np.void and all(map(_is_plain_field, dtype.fields.values()))
    if dtype.type.__module__ == _EXTENSIONS:
        return True
    # User-defined types have "V" for their kind too, and string dtypes of variable length "T".
    return dtype.kind in _SIMPLE and dtype.type.__module__ == "numpy" and dtype.num < 256


def _is_plain_field(field: tuple[Any, ...]) -> bool:
    kind, _, *titles = field
    return is_plain(kind) and all(isinstance(title, str) for title in titles)


def describe(dtype: np.dtype) -> Any:
    """Return a plain dtype as strings, numbers and lists.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.dtypes import describe
    >>> describe(np.dtype(">M8[ms]"))
    '>M8[ms]'
    """
    if dtype.subdtype is not None:
        return ["array", describe(dtype.base), list(dtype.shape)]
    if dtype.fields is not None:
        fields = [[name, *_field(dtype.fields[name])] for name in dtype.names or ()]
        return ["fields", fields, dtype.itemsize, dtype.isalignedstruct]
    if dtype.type.__module__ == _EXTENSIONS:
        return [_EXTENSIONS, dtype.type.__name__]
    return dtype.str


def _field(field: tuple[Any, ...]) -> list[Any]:
    kind, offset, *title = field
    return [describe(kind), offset, *title]


def parse(described: Any, depth: int = 0) -> np.dtype:
    """Return the dtype that was described.

    Raises `CorruptFrameError` if this describes none, or one with Python objects;
    `ModuleNotFoundError` if its library is not installed here.

    Examples
    --------
    >>> from gpusched.serialization.dtypes import parse
    >>> parse(["array", "<f4", [2]])
    dtype(('<f4', (2,)))
    """
    try:
        found = _parse(described, depth)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
        if isinstance(error, CorruptFrameError):
            raise
        raise CorruptFrameError(f"{described!r:.200} describes no dtype: {error}") from error
    if found.hasobject or not found.itemsize:
        raise CorruptFrameError(f"{described!r:.200} describes a dtype without plain bytes")
    return found


def _parse(described: Any, depth: int) -> np.dtype:
    if isinstance(described, str):
        return _simple(described)
    if depth > _DEEPEST:
        raise CorruptFrameError(f"a dtype of more than {_DEEPEST} levels")
    match described:
        case ["array", base, list(shape)]:
            return _array(parse(base, depth + 1), shape)
        case ["fields", list(fields), int(itemsize), bool(aligned)]:
            return _structured([_field_of(f, depth) for f in fields], itemsize, aligned)
        case ["ml_dtypes", str(name)]:
            return _extension(name)
    raise CorruptFrameError(f"{described!r:.200} describes no dtype")


# NumPy neither checks these numbers nor the sums it makes of them: Python's integers do.


def _simple(described: str) -> np.dtype:
    # NumPy understands much more, which it evaluates as Python's literals for one.
    found = _WRITTEN.fullmatch(described)
    if found is None:
        raise CorruptFrameError(f"{described!r:.200} describes no simple dtype")
    kind, size, count = described[1], int(found[1]), int(found[3] or 1)
    _number(size * 4 if kind == "U" else size, 0, _LARGEST)
    _number(count, 1, 2**31 - 1)
    return np.dtype(described)


def _array(base: np.dtype, shape: list[Any]) -> np.dtype:
    for length in shape:
        _number(length, 1, _LARGEST)
    _number(base.itemsize * math.prod(shape), 1, _LARGEST)
    return np.dtype((base, tuple(shape)))


class _Field(NamedTuple):
    name: str
    kind: np.dtype
    offset: int
    title: str | None


def _field_of(described: Any, depth: int) -> _Field:
    match described:
        case [str(name), kind, offset] | [str(name), kind, offset, None]:
            return _Field(name, parse(kind, depth + 1), offset, None)
        case [str(name), kind, offset, str(title)]:
            return _Field(name, parse(kind, depth + 1), offset, title)
    raise CorruptFrameError(f"{described!r:.200} describes no field")


def _structured(fields: list[_Field], itemsize: int, aligned: bool) -> np.dtype:
    _number(itemsize, 1, _LARGEST)
    for field in fields:
        _number(field.offset, 0, itemsize - field.kind.itemsize)
    return np.dtype({
        "names": [field.name for field in fields],
        "formats": [field.kind for field in fields],
        "offsets": [field.offset for field in fields],
        "titles": [field.title for field in fields],
        "itemsize": itemsize,
    }, align=aligned)  # fmt: skip


def _extension(name: str) -> np.dtype:
    found = vars(importlib.import_module(_EXTENSIONS)).get(name)
    if not isinstance(found, type) or not issubclass(found, np.generic):
        raise CorruptFrameError(f"{name!r:.200} is not a dtype of {_EXTENSIONS}")
    return np.dtype(found)


def _number(number: Any, least: int, most: int) -> None:
    if type(number) is not int or not least <= number <= most:
        raise CorruptFrameError(f"a dtype's number {number!r:.100} is not from {least} to {most}")
