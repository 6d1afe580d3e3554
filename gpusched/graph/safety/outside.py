"""What functions read from outside of themselves: a plan holds for these values only."""

from __future__ import annotations

import builtins
import types
from typing import Any

import numpy as np

from gpusched.graph.safety.kinds import is_constant, same
from gpusched.record.foreign import recorded_form
from gpusched.record.recorded import Freezable

_MISSING = object()


class Outside:
    """Where functions have read what.

    Notes
    -----
    Filled by one thread while functions are examined, and not changed since.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self._cells: dict[int, tuple[types.CellType, Any]] = {}
        self._functions: dict[int, tuple[types.FunctionType, Any, Any, Any]] = {}
        self._kernels: dict[int, tuple[Any, Any]] = {}
        self._parts: list[Any] = []

    def name(self, function: types.FunctionType, name: str) -> Any:
        """Return a global of a function's, or one of Python's own functions.

        Raises
        ------
        KeyError
            If there is none of that name.
        """
        found = self._read(function.__globals__, name)
        if found is _MISSING:
            found = self._read(getattr(function, "__builtins__", vars(builtins)), name)
        if found is _MISSING:
            raise KeyError(name)
        return found

    def builtin(self, function: types.FunctionType, name: str) -> Any:
        """Return one of the functions that are Python's own to a function; None if there is none.

        Instructions that need such a function look nowhere else.
        """
        found = self._read(getattr(function, "__builtins__", vars(builtins)), name)
        return None if found is _MISSING else found

    def entry(self, names: dict[str, Any], name: str) -> Any:
        """Return what a dictionary, such as a module's, has by a name; `KeyError` if nothing."""
        found = self._read(names, name)
        if found is _MISSING:
            raise KeyError(name)
        return found

    def _read(self, names: dict[str, Any], name: str) -> Any:
        # What other mappings have for a name is their own affair.
        value = names.get(name, _MISSING) if type(names) is dict else _MISSING
        if (id(names), name) not in self._names:
            self._names[id(names), name] = names, name, value
            self._parts.append((name, frozen(value)))
        return value

    def cell(self, cell: types.CellType, name: str) -> Any:
        """Return a variable of an outer function; `ValueError` while it has no value."""
        value = cell.cell_contents
        if id(cell) not in self._cells:
            self._cells[id(cell)] = cell, value
            self._parts.append((name, frozen(value)))
        return value

    def function(self, function: types.FunctionType) -> None:
        """Note the code and the defaults of a function that is called."""
        if id(function) not in self._functions:
            parts = function.__code__, function.__defaults__, _keywords(function)
            self._functions[id(function)] = function, *parts
            self._parts.append((function.__code__, *map(frozen, parts[1:])))

    def kernel(self, callee: Any) -> None:
        """Note a user's kernel, or what is recorded as one, which reads values from outside."""
        found = None if id(callee) in self._kernels else _frozen_parts(callee)
        if found is not None:
            self._kernels[id(callee)] = callee, found
            self._parts.append(found)

    def holds(self) -> bool:
        """Return whether everything is as it was when it was read."""
        for names, name, value in self._names.values():
            if not same(names.get(name, _MISSING), value):
                return False
        for cell, value in self._cells.values():
            try:
                if not same(cell.cell_contents, value):
                    return False
            except ValueError:  # it has no value any more
                return False
        for function, code, defaults, keywords in self._functions.values():
            if function.__code__ is not code or _keywords(function) != keywords:
                return False
            if function.__defaults__ is not defaults:
                return False
        return all([_frozen_parts(kernel) == parts for kernel, parts in self._kernels.values()])

    @property
    def identity(self) -> tuple[Any, ...]:
        """The values that a function reads, to be compared and hashed."""
        return tuple(self._parts)


def _frozen_parts(callee: Any) -> Any:
    """Return what a plan depends on that holds a kernel as it is now; None if it is none."""
    return callee.parts() if isinstance(callee, Freezable) else recorded_form(callee)


def _keywords(function: types.FunctionType) -> tuple[Any, ...]:
    return tuple((name, id(value)) for name, value in (function.__kwdefaults__ or {}).items())


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
