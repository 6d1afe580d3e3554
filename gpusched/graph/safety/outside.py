"""What functions read from outside of themselves: a plan holds for these values only."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import eq
from typing import Any

import numpy as np

from gpusched.graph.safety.kinds import is_constant, same
from gpusched.record.catalogue import recorded_form
from gpusched.record.recorded import Freezable

_MISSING = object()


class Outside:
    """Where functions have read what.

    Notes
    -----
    Filled by one thread while functions are examined, and not changed since.
    """

    def __init__(self) -> None:
        self._read: dict[Any, tuple[Callable[[], Any], Any, Callable[[Any, Any], bool]]] = {}
        """By what has been read: how it is read, what that gave, and what compares it."""
        self._parts: list[Any] = []

    def name(self, function: types.FunctionType, name: str) -> Any:
        """Return a global of a function's, or one of Python's own functions.

        Raises
        ------
        KeyError
            If there is none of that name.
        """
        found = self._entry(function.__globals__, name)
        if found is _MISSING:
            found = self._entry(getattr(function, "__builtins__", vars(builtins)), name)
        if found is _MISSING:
            raise KeyError(name)
        return found

    def builtin(self, function: types.FunctionType, name: str) -> Any:
        """Return one of the functions that are Python's own to a function; None if there is none.

        Instructions that need such a function look nowhere else.
        """
        found = self._entry(getattr(function, "__builtins__", vars(builtins)), name)
        return None if found is _MISSING else found

    def entry(self, names: dict[str, Any], name: str) -> Any:
        """Return what a dictionary, such as a module's, has by a name; `KeyError` if nothing."""
        found = self._entry(names, name)
        if found is _MISSING:
            raise KeyError(name)
        return found

    def _entry(self, names: dict[str, Any], name: str) -> Any:
        # What other mappings have for a name is their own affair.
        own = names if type(names) is dict else dict[str, Any]()
        read = partial(own.get, name, _MISSING)
        return self._note((id(names), name), read, lambda value: (name, frozen(value)))

    def cell(self, cell: types.CellType, name: str) -> Any:
        """Return a variable of an outer function; `ValueError` while it has no value."""
        found = self._note(id(cell), partial(_contents, cell), lambda value: (name, frozen(value)))
        if found is _MISSING:
            raise ValueError(name)
        return found

    def function(self, function: types.FunctionType) -> None:
        """Note the code and the defaults of a function that is called."""
        self._note(id(function), partial(_meaning, function),
                   lambda found: (found[0], *map(frozen, found[1:])), _means)  # fmt: skip

    def kernel(self, callee: Any) -> None:
        """Note a user's kernel, or what is recorded as one, which reads values from outside."""
        if _frozen_parts(callee) is not None:
            self._note(id(callee), partial(_frozen_parts, callee), lambda found: found, eq)

    def _note(self, key: Any, read: Callable[[], Any], part: Callable[[Any], Any],
              compare: Callable[[Any, Any], bool] = same) -> Any:  # fmt: skip
        """Return what is read now; note the first time, with what identifies it."""
        value = read()
        if key not in self._read:
            # With `read`, whatever the key is the id of stays alive.
            self._read[key] = read, value, compare
            self._parts.append(part(value))
        return value

    def holds(self) -> bool:
        """Return whether everything is as it was when it was read."""
        for read, value, compare in self._read.values():
            now = read()
            if now is not value and not compare(now, value):
                return False
        return True

    @property
    def identity(self) -> tuple[Any, ...]:
        """The values that a function reads, to be compared and hashed."""
        return tuple(self._parts)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value
        return _MISSING


def _meaning(function: types.FunctionType) -> tuple[Any, ...]:
    """Return a function's code and defaults: these themselves, as others get their ids later."""
    keywords = (function.__kwdefaults__ or {}).items()
    return function.__code__, function.__defaults__, *chain.from_iterable(keywords)


def _means(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    return len(now) == len(before) and all(map(same, now, before))


def _frozen_parts(callee: Any) -> Any:
    """Return what a plan depends on that holds a kernel as it is now; None if it is none."""
    return callee.parts() if isinstance(callee, Freezable) else recorded_form(callee)


def frozen(value: Any) -> Any:
    """Return what identifies a value, to be hashed."""
    if value is _MISSING:
        return "missing"
    if is_constant(value):
        return type(value), repr(value)
    if type(value) is tuple:
        return tuple, *map(frozen, value)
    if isinstance(value, types.FunctionType | np.ufunc | types.ModuleType | type):
        return value
    if isinstance(value, types.BuiltinFunctionType):
        return value.__module__, value.__qualname__, id(value)
    return type(value), id(value)
