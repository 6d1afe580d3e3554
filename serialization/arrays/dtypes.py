"""Dtypes as plain data, which needs no pickle."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

from gpusched.serialization.frames import CorruptFrameError

_EXTENSIONS = "ml_dtypes"
"""The library of bfloat16 and other small floats; JAX and TensorFlow bring it."""
_DEEPEST = 32
_SIMPLE = frozenset("biufcmMSUV")
_WRITTEN = re.compile(r"[<>|][biufcmMSUV]\d+(\[\d*[a-zA-Zμ]+\])?")
"""How NumPy writes a simple dtype."""


def is_plain(dtype: np.dtype) -> bool:
    """Return whether a dtype can be described: no Python objects, metadata or unknown types.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays.dtypes import is_plain
    >>> is_plain(np.dtype([("x", "f4"), ("y", ">i2", 3)])), is_plain(np.dtype(object))
    (True, False)
    """
    if dtype.hasobject or dtype.metadata or not dtype.itemsize:
        return False
    if dtype.subdtype is not None:
        return is_plain(dtype.base)
    if dtype.fields is not None:
        return dtype.type is np.void and all(is_plain(field[0]) for field in dtype.fields.values())
    if dtype.type.__module__ == _EXTENSIONS:
        return True
    # User-defined types have "V" for their kind too, and string dtypes of variable length "T".
    return dtype.kind in _SIMPLE and dtype.type.__module__ == "numpy" and dtype.num < 256


def describe(dtype: np.dtype) -> Any:
    """Return a plain dtype as strings, numbers and lists.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays.dtypes import describe
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

    Raises
    ------
    CorruptFrameError
        If this describes none, or one with Python objects.
    ModuleNotFoundError
        If its library is not installed here.

    Examples
    --------
    >>> from gpusched.serialization.arrays.dtypes import parse
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
        # NumPy understands much more, which it evaluates as Python's literals for one.
        if not _WRITTEN.fullmatch(described):
            raise CorruptFrameError(f"{described!r:.200} describes no simple dtype")
        return np.dtype(described)
    if depth > _DEEPEST:
        raise CorruptFrameError(f"a dtype of more than {_DEEPEST} levels")
    match described:
        case ["array", base, list(shape)]:
            return np.dtype((parse(base, depth + 1), tuple(shape)))
        case ["fields", list(fields), int(itemsize), bool(aligned)]:
            return np.dtype({
                "names": [field[0] for field in fields],
                "formats": [parse(field[1], depth + 1) for field in fields],
                "offsets": [field[2] for field in fields],
                "titles": [field[3] if len(field) > 3 else None for field in fields],
                "itemsize": itemsize,
            }, align=aligned)  # fmt: skip
        case ["ml_dtypes", str(name)] if name.isidentifier():
            return np.dtype(getattr(importlib.import_module(_EXTENSIONS), name))
    raise CorruptFrameError(f"{described!r:.200} describes no dtype")
