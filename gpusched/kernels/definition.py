"""A user's function with everything it reads from outside, frozen: what it means everywhere.

A definition has a digest, by which processes recognise it, and travels by value: a worker needs
neither the module of the function nor its source.
"""

from __future__ import annotations

import builtins
import hashlib
import types
from collections.abc import Callable
from dataclasses import field
from typing import Any

import cloudpickle
import numpy as np

from gpusched.dataclass import dataclass
from gpusched.kernels.errors import KernelError, location
from gpusched.newest import Newest
from gpusched.record.bytecode import instructions, looked_up

Value = Any
"""What a function reads from outside: a number, a module, or another function."""

_NUMBERS = (bool, int, float, complex, str, type(None), np.generic, np.dtype)
_UNKNOWN = object()

FACTS: Newest[str, dict[Any, Any]] = Newest(4096)
"""What has been found out of definitions, by digest; it travels with them, so that workers need
not find it out again."""


@dataclass(frozen=True)
class Definition:
    """A scalar function.

    Notes
    -----
    Immutable; equal definitions have equal digests.
    """

    function: types.FunctionType = field(compare=False)
    """The code; its globals are those in `outside`, and no others."""
    outside: dict[str, Value] = field(compare=False)
    """What it reads: numbers, modules, functions of libraries, and `Definition` objects."""
    digest: str
    """Hexadecimal, of the code and of all that it reads; stable across processes."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    @property
    def arity(self) -> int:
        """How many positional parameters the function has."""
        return self.function.__code__.co_argcount

    def __reduce__(self) -> Any:
        # By value: what unpickles this needs no module of the user's.
        payload = cloudpickle.dumps((self.function, self.outside))
        return _restore, (payload, self.digest, dict(FACTS.get(self.digest, {})))

    def bind(self, target: Callable[[Value], Value], code: types.CodeType | None = None) -> Any:
        """Return the function reading ``target(value)`` wherever it reads `value` from outside.

        `code`, if given, is run instead of the function's own.
        """
        found = {name: target(value) for name, value in self.outside.items()}
        original = self.function
        closure = tuple(types.CellType(found.pop(n)) for n in original.__code__.co_freevars)
        scope = {"__name__": __name__, "__builtins__": builtins} | found
        bound = types.FunctionType(
            code or original.__code__, scope, self.name, original.__defaults__, closure
        )
        bound.__qualname__ = f"{self.name}_{self.digest}"
        bound.__module__ = __name__
        return bound

    def plain(self) -> Callable[..., Any]:
        """Return the function as Python runs it."""
        bound: Callable[..., Any] = self.bind(_plain)
        return bound


def _plain(value: Value) -> Value:
    return value.plain() if isinstance(value, Definition) else value


def _restore(payload: bytes, digest: str, facts: dict[Any, Any]) -> Definition:
    FACTS.setdefault(digest, {}).update(facts)
    function, outside = cloudpickle.loads(payload)
    return Definition(function, outside, digest)


def define(function: Callable[..., Any]) -> Definition:
    """Freeze a function.

    Raises
    ------
    KernelError
        If it is not a plain Python function of scalars, or reads what a kernel cannot hold.

    Examples
    --------
    >>> from gpusched.kernels.definition import define
    >>> scale = 3.0
    >>> define(lambda x: x * scale).outside
    {'scale': 3.0}
    """
    return _define(function, ())


def _define(function: Any, within: tuple[Any, ...]) -> Definition:
    if not isinstance(function, types.FunctionType):
        raise KernelError(f"a kernel is made of a Python function, not of {function!r}")
    code = function.__code__
    if code in within:
        raise KernelError(f"{location(code)}: {function.__name__} calls itself; kernels cannot")
    _check_signature(function)
    _check_instructions(function.__name__, code)
    outside = {
        name: _frozen(function, name, value, (*within, code))
        for name, value in outside_of(function).items()
    }
    copy = types.FunctionType(
        code, {}, function.__name__, function.__defaults__,
        tuple(types.CellType(None) for _ in code.co_freevars),
    )  # fmt: skip
    copy.__module__ = __name__
    parts = [_describe_code(code), repr([_described(d) for d in function.__defaults__ or ()])]
    parts += [f"{name}={_described(value)}" for name, value in sorted(outside.items())]
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    return Definition(copy, outside, digest)


def _check_signature(function: types.FunctionType) -> None:
    code = function.__code__
    starred = code.co_flags & 0x0C
    if starred or code.co_kwonlyargcount or not code.co_argcount:
        raise KernelError(
            f"{location(code)}: kernel {function.__name__} needs one or more positional parameters,"
            " and no * or ** ones"
        )


_REFUSED = {
    "RAISE_VARARGS": "raises an exception, which GPUs cannot",
    "YIELD_VALUE": "is a generator",
    "RETURN_GENERATOR": "is a generator",
    "STORE_GLOBAL": "assigns to a global variable",
    "IMPORT_NAME": "imports; do that outside",
    "SETUP_WITH": "has a with statement",
    "BEFORE_WITH": "has a with statement",
    "PUSH_EXC_INFO": "catches exceptions, which GPUs cannot",
}


def _check_instructions(name: str, code: types.CodeType) -> None:
    line = code.co_firstlineno
    for instruction in instructions(code):
        position = instruction.positions
        line = (position.lineno if position else None) or line
        problem = _REFUSED.get(instruction.opname)
        if problem:
            raise KernelError(f"{location(code, line)}: kernel {name} {problem}")


def outside_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the present values of the names that a function takes from outside.

    Builtins are left out; names that nobody has defined are an error when the kernel is compiled.
    """
    found = {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:
            found[name] = _UNKNOWN  # Assigned later, or never.
    scope = function.__globals__
    for name in looked_up(function.__code__):
        if name in scope:
            found[name] = scope[name]
    return found


def _frozen(function: types.FunctionType, name: str, value: Any, within: tuple[Any, ...]) -> Value:
    """Return a value from outside as a definition holds it."""
    if isinstance(value, types.FunctionType) and not _of_library(value):
        return _define(value, within)
    if inner_function(value) is not value:
        return _define(inner_function(value), within)
    described = _described(value)
    if described is None:
        raise KernelError(
            f"{location(function.__code__)}: kernel {function.__name__} uses {name}, "
            f"a {type(value).__name__}; kernels can read numbers, arrays, modules and functions"
        )
    return value.copy() if isinstance(value, np.ndarray) else value


def inner_function(value: Any) -> Any:
    """Return the Python function in a kernel, or in what numba compiles; else `value` itself."""
    return getattr(value, "__gpusched_function__", None) or getattr(value, "py_func", value)


def _of_library(function: Any) -> bool:
    return str(getattr(function, "__module__", None)).partition(".")[0] in (
        "numpy",
        "math",
        "numba",
    )


def _described(value: Any) -> str | None:
    """Return text that is equal for equal values in every process; None for what has none."""
    if isinstance(value, Definition):
        return f"definition {value.digest}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, _NUMBERS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple):
        inner = [_described(item) for item in value]
        return None if None in inner else f"tuple {inner}"
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.dtype.str} {value.shape} {content}"
    if type(value).__module__.startswith("numba.") and hasattr(value, "cast_python_value"):
        return f"dtype {value}"
    if isinstance(value, type | np.ufunc | types.BuiltinFunctionType) or _of_library(value):
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        return f"named {getattr(value, '__module__', '')}.{name}" if name else None
    return None


def _describe_code(code: types.CodeType) -> str:
    constants = [
        _describe_code(c) if isinstance(c, types.CodeType) else f"{type(c).__name__} {c!r}"
        for c in code.co_consts
    ]
    parts = (code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars,
             code.co_cellvars, code.co_argcount)  # fmt: skip
    return repr(parts)
