"""Code that raises no floating-point error where NumPy's would not: for kernels that read flags.

x86 has comparisons of vectors, least and greatest that raise an error for NaN, and LLVM uses them.
They are given numbers instead where an operand is NaN; nothing else is known to differ.

LLVM leaves that out where it knows that an operand is not NaN, and then computes both branches of
the choice by which it knows it. So it must not know that what is asked is the operand: `_hidden`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from llvmlite import ir

from gpusched.adapters import numba as numba_code
from gpusched.vectormath.bits import device, llvm, of_floats, opaque

_INSTEAD = {"olt": (0, 0), "ogt": (0, 0), "ole": (1, 0), "oge": (0, 1),
            "ult": (0, 1), "ugt": (1, 0), "ule": (0, 0), "uge": (0, 0)}  # fmt: skip
"""By comparison, the numbers that are compared where an operand is NaN, with the same result."""


def compare(module: Any) -> None:
    """Change the comparisons in a module so that they raise nothing for NaN."""
    for function in module.functions:
        for block in function.blocks:
            for each in list(block.instructions):
                if each.opname == "fcmp" and each.op in _INSTEAD:
                    _compared_quietly(block, each)


def _hidden(builder: Any, x: Any) -> Any:
    """Return a number of whose relation to x LLVM knows nothing: its bits, less an unknown zero."""
    if isinstance(x, ir.Constant):
        return x
    whole = ir.IntType({ir.HalfType: 16, ir.FloatType: 32}.get(type(x.type), 64))
    zero = builder.load(opaque(builder.module, whole, 0))
    return builder.bitcast(builder.xor(builder.bitcast(x, whole), zero), x.type)


def _compared_quietly(block: Any, comparison: Any) -> None:
    """Change the operands of a comparison; what makes them is put before it."""
    builder = ir.IRBuilder(block)
    builder.position_before(comparison)
    operands = [_hidden(builder, x) for x in comparison.operands]
    numbers = builder.fcmp_ordered("ord", *operands)
    comparison.operands = tuple(
        builder.select(numbers, x, builder.load(opaque(block.module, x.type, instead)))
        for x, instead in zip(operands, _INSTEAD[comparison.op], strict=True)
    )


class Inlined(numba_code.Inlined):
    """Numba's pipeline for functions that become part of kernels that read flags."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, result: Any,
                 flags: Any, locals: Any) -> None:  # fmt: skip
        super().__init__(typing, target, library, args, result, flags, locals)
        compare_in(self.state.library)


def compare_in(library: Any) -> None:
    """Change the comparisons in what will be added to one of numba's code libraries."""
    add_module = library.add_ir_module

    def add_quiet(module: Any) -> None:
        compare(module)
        add_module(module)

    library.add_ir_module = add_quiet


def _least(name: str, keeps_nan: bool) -> Any:
    """Return the least (greatest) of two numbers, as NumPy's function of that name."""

    def least(builder: Any, a: Any, b: Any) -> Any:
        hidden = [_hidden(builder, x) for x in (a, b)]
        numbers = builder.fcmp_ordered("ord", *hidden)
        number = builder.load(opaque(builder.module, a.type, 0))
        found = llvm(name, builder, *(builder.select(numbers, x, number) for x in hidden))
        if keeps_nan:
            return builder.select(numbers, found, builder.fadd(a, b))
        other = builder.select(builder.fcmp_ordered("ord", a, a), a, b)
        return builder.select(numbers, found, other)

    return of_floats(2, least)


EXTREMES = {
    "minimum": _least("minimum", keeps_nan=True),
    "maximum": _least("maximum", keeps_nan=True),
    "fmin": _least("minnum", keeps_nan=False),
    "fmax": _least("maxnum", keeps_nan=False),
}
"""By name, functions that take the place of those in `primitives`."""


def _or_instead(instead: float) -> Any:
    """Return the first number, or one for which there is no error where it or the other is NaN."""

    def number(builder: Any, x: Any, other: Any) -> Any:
        hidden = [_hidden(builder, each) for each in (x, other)]
        numbers = builder.fcmp_ordered("ord", *hidden)
        return builder.select(numbers, hidden[0], ir.Constant(x.type, instead))

    return of_floats(2, number)


_number = _or_instead(0.5)


@lru_cache(maxsize=256)
def of_numbers(name: str, function: Any) -> Any:
    """Return a mathematical function that is not called for NaN.

    Parameters
    ----------
    name
        Such as ``exp_f32``.
    function
        What is called for numbers.
    """
    plain = name.removesuffix("_f32").removesuffix("_f64")
    return device(_FORMS.get(plain, _of_one)(function))


def _of_one(function: Any, number: Any = _number) -> Callable[..., Any]:
    def found(x: Any) -> Any:
        result = function(number(x, x))
        return result if x == x else x

    return found


def _power(function: Any) -> Callable[..., Any]:
    def found(x: Any, y: Any) -> Any:
        result = function(_number(x, x), _number(y, y))
        # 1, whatever the other is.
        one = (x == 1) | (y == 0)
        return result if one | ((x == x) & (y == y)) else x + y

    return found


def _hypot(function: Any) -> Callable[..., Any]:
    def found(x: Any, y: Any) -> Any:
        result = function(_number(x, y), _number(y, x))
        other = abs(x) if abs(x) == math.inf else (abs(y) if abs(y) == math.inf else x + y)
        return result if (x == x) & (y == y) else other

    return found


def _of_two(function: Any) -> Callable[..., Any]:
    def found(x: Any, y: Any) -> Any:
        result = function(_number(x, y), _number(y, x))
        return result if (x == x) & (y == y) else x + y

    return found


_FORMS: dict[str, Callable[..., Any]] = {
    "power": _power, "hypot": _hypot, "arctan2": _of_two, "fmod": _of_two,
    "arccosh": partial(_of_one, number=_or_instead(1.5)),
}  # fmt: skip
