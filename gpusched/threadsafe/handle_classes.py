"""Which results of a wrapped library are handles that belong to it, and which are mere data."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator, MappingView
from typing import Any, Literal

from gpusched.newest import Newest

Verdict = Literal["data", "handle", "ask", "container", "asynchronous"]

PLAIN = frozenset((bool, bytearray, bytes, complex, float, int, range, slice, str, type(None),
                   type(...), type(NotImplemented)))  # fmt: skip
"""Types that are data wherever they come from."""

_ARRAYS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__", "__dataframe__")
"""What types of data have, such as arrays, whichever library they come from."""

_ASKED = (type, types.BuiltinFunctionType, types.FunctionType, types.MethodType, types.ModuleType)
"""Types whose instances say themselves where they belong."""

_KEPT = 10_000
"""Verdicts remembered."""


def top_level(module: Any) -> str:
    """Return the name of the package that a module belongs to, without a C module's underscore.

    Examples
    --------
    >>> from gpusched.threadsafe.handle_classes import top_level
    >>> top_level("_sqlite3"), top_level("xml.etree")
    ('sqlite3', 'xml')
    """
    name = module if isinstance(module, str) else ""
    first = name.partition(".")[0]
    return first if first.startswith("__") else first.lstrip("_")


class Package:
    """The package whose objects a wrapped object gives out.

    Parameters
    ----------
    name
        Of the package; empty for one that gives out none.
    results
        Whether what calls return may be handles at all.

    Examples
    --------
    >>> import sqlite3
    >>> from gpusched.threadsafe.handle_classes import Package
    >>> package = Package.of(sqlite3.connect)
    >>> with sqlite3.connect(":memory:") as connection:
    ...     package.is_handle(connection), package.is_handle((1, 2))
    (True, False)

    Notes
    -----
    Thread-safe: the remembered verdicts are only ever replaced by equal ones.
    """

    __slots__ = ("_verdicts", "name", "results")

    def __init__(self, name: str, results: bool = True) -> None:
        self.name = "" if name == "builtins" else name
        self.results = results
        self._verdicts: Newest[type, Verdict] = Newest(_KEPT)

    @classmethod
    def of(cls, value: Any, results: bool = True) -> Package:
        """Return the package of what is about to be wrapped."""
        if isinstance(value, types.ModuleType):
            return cls(top_level(value.__name__), results)
        where = value if isinstance(value, _ASKED) else type(value)
        return cls(top_level(getattr(where, "__module__", "")), results)

    def is_handle(self, value: Any) -> bool:
        """Return whether a value is to be used through the policy.

        Raises `TypeError` if it is to be awaited, for which there is no policy.
        """
        kind = type(value)
        if kind in PLAIN:
            return False
        verdict = self._verdicts.get(kind)
        if verdict is None:
            verdict = self._verdicts[kind] = self._judge(kind)
        if verdict == "data":
            return False
        if verdict == "ask":
            return self._owns(value)
        if verdict == "container":
            return any(map(self.is_handle, dict.values(value) if issubclass(kind, dict) else value))
        if verdict == "asynchronous":
            raise TypeError(
                f"{value!r} is to be awaited: no policy can be had for asynchronous code"
            )
        return True

    def _judge(self, kind: type) -> Verdict:
        if issubclass(kind, (types.CoroutineType, types.AsyncGeneratorType)):
            return "asynchronous"
        if issubclass(kind, _ASKED):
            return "ask"
        if issubclass(kind, (BaseException, enum.Enum)) or any(hasattr(kind, a) for a in _ARRAYS):
            return "data"
        if issubclass(kind, (dict, frozenset, list, set, tuple)):
            return "container"
        if issubclass(kind, (MappingView, Iterator)):
            # What they give out later is only known then.
            return "handle"
        if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
            return "handle"
        return "handle" if self.name and top_level(kind.__module__) == self.name else "data"

    def _owns(self, value: Any) -> bool:
        if isinstance(value, type) and issubclass(value, BaseException):
            # Only a real class can stand behind `except`.
            return False
        where = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
        return bool(self.name) and top_level(where) == self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return Package, (self.name, self.results)
