"""numba's functions of arrays, made by ``numba.njit``: what they compute becomes part of kernels.

Such a function is recorded if its code goes straight from its arguments to its result, by operators
and by functions of NumPy's that have a value of each element: then it changes nothing, and keeps
nothing. The code runs on arrays that compute by numba's rules, of the dtypes and operations for
which these are known to give NumPy's numbers:

- Numbers are of 64 bits, as in NumPy where they are scalars of its own: a float32 array times 2.0
  is one of float64.
- float32, float64, int64, and truth values that comparisons give; but no float32 with integers,
  which numba computes in float64 within an expression and rounds at its end. Shorter integers it
  widens in the same way. ``//`` and ``%`` are of int64: of floats they depend on whether numba
  takes them for a part of a larger expression.
- Integers that overflow wrap around, as NumPy's do: numba's compiler takes it that they do not,
  and that ``x + 1 < x`` is false. Of zeros of both signs, `minimum` and `maximum` give NumPy's.
- Nothing is reported, and no operator changes what is left of it.

What is left is numba's: it is called as it is, and so where it may have compiled other values than
there are now (`gpusched.kernels.vectorized`).
"""

from __future__ import annotations

import dis
import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import field
from typing import Any, NoReturn

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.kernels.definition import Definition, Value, define, outside_of
from gpusched.kernels.errors import KernelError
from gpusched.kernels.vectorized import Compiled, is_compiled_as_it_is
from gpusched.plan.expression import UnfusibleError
from gpusched.record.bytecode import instructions, looked_up
from gpusched.record.chunk import LazyChunk, node_of
from gpusched.record.record import Recorder

_NUMBERS = frozenset(map(np.dtype, ("f4", "f8", "i8")))
_TRUTH = np.dtype(bool)

_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide}
_COMPARISONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                "eq": np.equal, "ne": np.not_equal}  # fmt: skip
_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_OPERATORS = {**_ARITHMETIC, **_LOGIC}

_FUNCTIONS = """arccos arcsin arctan arctan2 ceil copysign cos cosh exp expm1 fabs floor fmax fmin
hypot isfinite isinf isnan log log10 log1p log2 maximum minimum rint sin sinh sqrt tan tanh trunc"""
_OF_FLOATS = frozenset(_FUNCTIONS.split())
"""NumPy's functions of floats that numba has, with NumPy's values or nearer ones."""
_ATTRIBUTES = frozenset([*_OF_FLOATS, "absolute", "abs", "where", "e", "inf", "nan", "pi"])
"""What is looked up in NumPy, the only module that a function may read."""

_STRAIGHT = ("BINARY_OP", "CALL", "COMPARE_OP", "COPY", "LOAD_", "NOP", "PRECALL", "PUSH_NULL",
             "RESUME", "RETURN_", "STORE_FAST", "SWAP", "UNARY_NEGATIVE")  # fmt: skip
"""How the names of instructions begin that do no more than compute."""
_NOT_STRAIGHT = ("CALL_FUNCTION_EX", "CALL_KW", "LOAD_BUILD_CLASS", "RETURN_GENERATOR")
_MOST_FACTORS = 64
"""The highest power that is computed by products."""
_SYMBOLS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^")


@dataclass(frozen=True)
class Jitted(Compiled):
    """A function of numba's, as it is now.

    Notes
    -----
    Immutable, and equal to any other that computes the same.
    """

    function: Any = field(compare=False)
    """The dispatcher."""
    definition: Definition
    """The Python function that it was made of."""

    @property
    def __name__(self) -> str:
        return self.definition.name

    def __dask_tokenize__(self) -> Any:
        return "numba.njit", self.definition.digest

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record what the function computes of lazy chunks; return a lazy chunk."""
        try:
            given = inspect.signature(self.definition.function).bind(*args, **options)
        except TypeError as error:
            raise UnfusibleError(GraphBreak.OPTION, str(error)) from error
        given.apply_defaults()
        arguments = list(map(_argument, given.args))
        try:
            with np.errstate(all="ignore"):
                found = self.definition.bind(_typed)(*arguments)
        except TypeError as error:
            raise UnfusibleError(GraphBreak.OWN_CODE, str(error)) from error
        result = found.held if type(found) is _Typed else found
        if not isinstance(result, LazyChunk) or any(result is each for each in given.args):
            raise UnfusibleError(GraphBreak.OWN_CODE, "returns what it has not computed")
        return LazyChunk(recorder, node_of(result), fresh=True)


def owns(function: Any) -> bool:
    """Return whether a function is one by ``numba.njit``, compiled for what it is called with."""
    module = sys.modules.get("numba.core.registry")
    if module is None or type(function) is not module.CPUDispatcher:
        return False
    from gpusched.adapters.numba import compiles_for_any

    return function.targetoptions.get("nopython") is True and compiles_for_any(function)


def form(function: Any) -> Jitted | None:
    """Return what records a function by ``numba.njit`` as it is now.

    None where its code does not go straight, or numba may have compiled something else.

    Examples
    --------
    >>> import numba
    >>> from gpusched.kernels.jitted import form
    >>> @numba.njit
    ... def twice(x):
    ...     return x + x
    >>> @numba.njit
    ... def cleared(x):
    ...     x[0] = 0
    ...     return x
    >>> form(twice).definition.name, form(cleared)
    ('twice', None)
    """
    # Arrays are divided as NumPy divides them; numbers alone are not recorded.
    if not _is_straight(function.py_func) or not is_compiled_as_it_is(function, divides=True):
        return None
    try:
        return Jitted(function, define(function.py_func))
    except KernelError:
        return None


def _is_straight(function: types.FunctionType) -> bool:
    """Return whether a function, and those it calls, only compute, by what is on the lists here."""
    code, outside = function.__code__, outside_of(function)
    jumps = {*dis.hasjrel, *dis.hasjabs}
    for each in instructions(code):
        name = each.opname
        if each.opcode in jumps or name in _NOT_STRAIGHT or not name.startswith(_STRAIGHT):
            return False
        if name == "BINARY_OP" and each.argrepr not in _SYMBOLS:
            return False
        if name in ("LOAD_ATTR", "LOAD_METHOD") and each.argval not in _ATTRIBUTES:
            return False
        if name == "LOAD_CONST" and type(each.argval) not in (int, float, type(None), tuple):
            return False
    return set(looked_up(code)) <= outside.keys() and all(map(_is_known, outside.values()))


def _is_known(value: Any) -> bool:
    """Return whether a function that is recorded may read a value from outside."""
    if type(value) in (int, float) or isinstance(value, np.generic) or value is np:
        return True
    if isinstance(value, np.ufunc):
        return value.__name__ in _OF_FLOATS and getattr(np, value.__name__) is value
    return value is np.where or (owns(value) and _is_straight(value.py_func))


# Arrays and numbers by numba's rules ------------------------------------------------------------


def _refuse(why: str) -> NoReturn:
    raise UnfusibleError(GraphBreak.OWN_CODE, why)


class _Typed:
    """An array or a number that computes as numba has it: in its own dtype, whatever it meets."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def __neg__(self) -> Any:
        return _computed(np.negative, (self,), _NUMBERS)

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 2 <= other <= _MOST_FACTORS and self.held.dtype in _POWERS:
            return self._product(other)
        # Of a half numba has the C library's power, which is not always the square root.
        if type(other) is not float or other == 0.5 or self.held.dtype != np.float64:
            _refuse("raises to a power that is none of those")
        return _computed(np.power, (self, other), _FLOATS)

    def _product(self, factors: int) -> _Typed:
        """Return a power as numba multiplies it: by squares, from the lowest bit on."""
        found: Any = None
        square: Any = self
        while factors:
            if factors & 1:
                found = square if found is None else found * square
            factors >>= 1
            square = square * square if factors else square
        product: _Typed = found
        return product

    def __rpow__(self, other: Any) -> Any:
        _refuse("raises a number to the power of an array")

    def __bool__(self) -> bool:  # noqa: PLE0304
        _refuse("goes by the values of an array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            _refuse(f"calls {ufunc.__name__} with options")
        if ufunc is np.absolute:
            return _computed(ufunc, inputs, _NUMBERS)
        if ufunc.__name__ not in _OF_FLOATS:
            _refuse(f"calls {ufunc.__name__}")
        return _computed(ufunc, inputs, _FLOATS)

    def __array_function__(self, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        if func is not np.where or len(args) != 3 or kwargs:
            _refuse(f"calls {func.__name__}")
        test, *rest = map(_held, args)
        if getattr(test, "dtype", None) != _TRUTH or not all(v.dtype in _NUMBERS for v in rest):
            raise UnfusibleError(GraphBreak.DTYPE, "a choice by or of other dtypes")
        if not isinstance(test, LazyChunk) or len({v.dtype for v in rest}) != 1:
            raise UnfusibleError(GraphBreak.DTYPE, "a choice of several dtypes")
        return _Typed(np.where(test, *rest))


_FLOATS = frozenset(map(np.dtype, ("f4", "f8")))
_POWERS = frozenset(map(np.dtype, ("f8", "i8")))


def _operator(ufunc: np.ufunc, dtypes: frozenset[np.dtype]) -> tuple[Callable[..., Any], ...]:
    def forward(self: _Typed, other: Any) -> Any:
        return _computed(ufunc, (self, other), dtypes)

    def backward(self: _Typed, other: Any) -> Any:
        return _computed(ufunc, (other, self), dtypes)

    return forward, backward


def _of_whole(ufunc: np.ufunc) -> tuple[Callable[..., Any], ...]:
    """Return operators that divide integers; those of floats numba computes in several ways."""

    def divided(number: Any, divisor: Any) -> Any:
        held = _held(divisor)
        if not isinstance(held, LazyChunk) and held in (0, -1):
            _refuse("divides by 0 or -1")
        found = _computed(ufunc, (number, divisor), frozenset([np.dtype(np.int64)]))
        if ufunc is np.floor_divide and isinstance(held, LazyChunk):
            # The one quotient that no integer holds.
            least = np.int64(np.iinfo(np.int64).min)
            beyond = (_held(number) == least) & (held == np.int64(-1))
            found = _Typed(np.where(beyond, np.int64(0), found.held))
        return found

    def forward(self: _Typed, other: Any) -> Any:
        return divided(self, other)

    def backward(self: _Typed, other: Any) -> Any:
        return divided(other, self)

    return forward, backward


for _name, _divides in {"floordiv": np.floor_divide, "mod": np.remainder}.items():
    _forward, _backward = _of_whole(_divides)
    setattr(_Typed, f"__{_name}__", _forward)
    setattr(_Typed, f"__r{_name}__", _backward)

for _name, _ufunc in {**_OPERATORS, **_COMPARISONS}.items():
    _forward, _backward = _operator(_ufunc, frozenset([_TRUTH]) if _name in _LOGIC else _NUMBERS)
    setattr(_Typed, f"__{_name}__", _forward)
    if _name in _OPERATORS:
        setattr(_Typed, f"__r{_name}__", _backward)


def _held(value: Any) -> Any:
    """Return an array or a number of NumPy's: Python's are of 64 bits to numba."""
    if type(value) is _Typed:
        return value.held
    if type(value) is float:
        return np.float64(value)
    if type(value) is int and -(2**63) <= value < 2**63:
        return np.int64(value)
    _refuse(f"computes with a {type(value).__name__}")


def _computed(ufunc: np.ufunc, operands: tuple[Any, ...], dtypes: frozenset[np.dtype]) -> _Typed:
    """Return what a ufunc gives for operands of some dtypes."""
    given = [_held(each) for each in operands]
    kinds = {each.dtype for each in given}
    if not kinds <= dtypes:
        raise UnfusibleError(GraphBreak.DTYPE, f"{ufunc.__name__} of other dtypes")
    if np.dtype("f4") in kinds and np.dtype("i8") in kinds:
        raise UnfusibleError(GraphBreak.DTYPE, "float32 with integers")
    if ufunc is np.divide and not any(isinstance(each, LazyChunk) for each in given):
        _refuse("divides numbers, which numba raises errors of")
    return _Typed(ufunc(*given))


def _argument(value: Any) -> _Typed:
    """Return an argument of the function's; `UnfusibleError` for what numba has other rules for."""
    known = isinstance(value, LazyChunk) and value.shape and value.dtype.isnative
    if not known and type(value) not in (int, float):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(value).__name__}")
    if known and value.dtype not in _NUMBERS:
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {value.dtype}")
    return _Typed(_held(value) if not known else value)


def _typed(value: Value) -> Value:
    """Return what the function's code reads instead of a value from outside."""
    if isinstance(value, Definition):
        return value.bind(_typed)
    if type(value) in (int, float):
        return _Typed(_held(value))
    return _Typed(value) if isinstance(value, np.generic) and value.dtype in _NUMBERS else value
