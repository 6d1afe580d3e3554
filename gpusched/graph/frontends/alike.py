"""Whether two functions are the same code: what one returns for a chunk, the other returns."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from dask.utils import Dispatch

from gpusched.record.bytecode import codes, looked_up

_CHUNK = np.ndarray
"""The type of chunks for which functions looked up by type are compared."""

_MISSING = object()


def alike(first: Any, second: Any, equal: Iterable[tuple[Any, Any]] = ()) -> bool:
    """Return whether two functions have the same code, and mean the same by the names in it.

    Names of modules, of other functions, and of functions looked up by the type of a chunk are
    followed; the latter for NumPy's. False where the comparison finds no answer.

    Parameters
    ----------
    first, second
        The functions.
    equal
        Pairs of functions that are known to do the same, whatever their code.

    Examples
    --------
    >>> from gpusched.graph.frontends.alike import alike
    >>> def double(x):
    ...     return x * 2
    >>> def twice(x):
    ...     "Return twice the value."
    ...     return x * 2
    >>> alike(double, twice), alike(double, abs)
    (True, False)
    """
    return _Comparison(equal).values(first, second, frozenset())


class _Comparison:
    """One comparison; pairs that are being compared count as the same when they are met again."""

    def __init__(self, equal: Iterable[tuple[Any, Any]]) -> None:
        self._met = {(id(first), id(second)) for first, second in equal}

    def values(self, first: Any, second: Any, names: frozenset[str]) -> bool:
        """Compare what a name means; `names` are those that the code may look up in a module."""
        if first is second:
            return True
        if type(first) is not type(second):
            return False
        pair = id(first), id(second)
        if pair in self._met:
            return True
        self._met.add(pair)
        if isinstance(first, FunctionType):
            return self._functions(first, second)
        if isinstance(first, ModuleType):
            return self._modules(first, second, names)
        if isinstance(first, Dispatch):
            return self._dispatches(first, second)
        if isinstance(first, tuple):
            return self._tuples(first, second, names)
        if isinstance(first, dict):
            return list(first) == list(second) and self._tuples(
                tuple(first.values()), tuple(second.values()), names
            )
        plain = isinstance(first, str | bytes | int | float | complex)
        return plain and repr(first) == repr(second)

    def _tuples(self, first: tuple[Any, ...], second: tuple[Any, ...],
                names: frozenset[str]) -> bool:  # fmt: skip
        return len(first) == len(second) and all(
            self.values(a, b, names) for a, b in zip(first, second, strict=True)
        )

    def _functions(self, first: FunctionType, second: FunctionType) -> bool:
        if not _same_code(first.__code__, second.__code__, documented=True):
            return False
        code = first.__code__
        names = frozenset(name for part in codes(code) for name in part.co_names)
        given = [
            (first.__defaults__, second.__defaults__),
            (first.__kwdefaults__, second.__kwdefaults__),
            (_cells(first), _cells(second)),
            (getattr(first, "__wrapped__", None), getattr(second, "__wrapped__", None)),
        ]
        given += [(_meaning(first, name), _meaning(second, name)) for name in looked_up(code)]
        return all(self.values(a, b, names) for a, b in given)

    def _modules(self, first: ModuleType, second: ModuleType, names: frozenset[str]) -> bool:
        return all(
            self.values(getattr(first, name, _MISSING), getattr(second, name, _MISSING), names)
            for name in names
        )

    def _dispatches(self, first: Dispatch, second: Dispatch) -> bool:
        return self.values(first.dispatch(_CHUNK), second.dispatch(_CHUNK), frozenset())


def _same_code(first: CodeType, second: CodeType, documented: bool = False) -> bool:
    if (
        first.co_code != second.co_code
        or first.co_names != second.co_names
        or first.co_varnames != second.co_varnames
        or first.co_freevars != second.co_freevars
        or first.co_flags != second.co_flags
        or first.co_argcount != second.co_argcount
        or first.co_kwonlyargcount != second.co_kwonlyargcount
        or first.co_exceptiontable != second.co_exceptiontable
        or len(first.co_consts) != len(second.co_consts)
    ):
        return False
    constants = list(zip(first.co_consts, second.co_consts, strict=True))
    if documented and constants and all(isinstance(c, str | None) for c in constants[0]):
        del constants[0]  # the documentation
    return all(_same_constant(a, b) for a, b in constants)


def _same_constant(first: Any, second: Any) -> bool:
    if isinstance(first, CodeType) and isinstance(second, CodeType):
        return _same_code(first, second)
    return type(first) is type(second) and repr(first) == repr(second)


def _cells(function: FunctionType) -> tuple[Any, ...]:
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


def _meaning(function: FunctionType, name: str) -> Any:
    """Return what a name means outside a function."""
    found = function.__globals__.get(name, _MISSING)
    return getattr(builtins, name, _MISSING) if found is _MISSING else found
