"""Numbers as their bits, signs, fused multiply-add and polynomials: what numba's Python lacks."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba import int32, types
from numba.extending import intrinsic

from gpusched.adapters.numba import leave_filters_alone

leave_filters_alone()


def _bitcast(source: Any, target: Any, llvm_type: Any) -> Any:
    @intrinsic
    def bitcast(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], llvm_type)

        return (target(source), generate) if x == source else None

    return bitcast


to_bits_f32 = _bitcast(types.float32, types.int32, ir.IntType(32))
from_bits_f32 = _bitcast(types.int32, types.float32, ir.FloatType())
to_bits_f64 = _bitcast(types.float64, types.int64, ir.IntType(64))
from_bits_f64 = _bitcast(types.int64, types.float64, ir.DoubleType())

SIGN = -9223372036854775808
"""The bit of a float64's sign."""
HALF_PI, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
PI, PI_LOW = 3.141592653589793, 1.2246467991473532e-16
HALF_PI_LOW_F32, PI_LOW_F32 = -4.371138828673793e-08, -8.742277657347586e-08
"""Half of pi, and pi, in two parts."""

Instructions = Callable[..., Any]
"""Given a builder of LLVM's, and numbers there: returns the result."""


def of_floats(arity: int, instructions: Instructions) -> Any:
    """Return a function of so many floats of one dtype, which its result has."""

    def typed(typing_context: Any, *given: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return instructions(builder, *args)

        alike = isinstance(given[0], types.Float) and len(set(given)) == 1
        return (given[0](*given), generate) if alike else None

    # numba would pass several as one tuple.
    names = ["typing_context", *("x", "y", "z")[:arity]]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    setattr(typed, "__signature__", Signature(parameters))  # noqa: B010  mypy knows of none
    return intrinsic(typed)


def llvm(name: str, builder: Any, *args: Any) -> Any:
    """Return what LLVM's own function of a name makes of numbers of one type."""
    kind = args[0].type
    function_type = ir.FunctionType(kind, [kind] * len(args))
    function = builder.module.declare_intrinsic(f"llvm.{name}", [kind], fnty=function_type)
    return builder.call(function, args)


HAS_FMA = platform.machine() in ("aarch64", "arm64") or bool(
    llvmlite.binding.get_host_cpu_features().get("fma")
)
"""Whether this processor multiplies and adds in one step; a C library call would be slow."""


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    if not HAS_FMA:
        return builder.fadd(builder.fmul(a, b), c)
    return llvm("fma", builder, a, b, c)


fma = of_floats(3, _fma)
"""Returns ``x * y + z``, rounded once where the processor can."""


def polynomial(*coefficients: float) -> Any:
    """Return a function of one number: the polynomial with these coefficients, highest power first.

    They are rounded to the number's dtype. `tests.vectormath.coefficients` finds them.
    """

    def evaluate(builder: Any, x: Any) -> Any:
        constants = [ir.Constant(x.type, c) for c in coefficients]
        total = constants[0]
        for constant in constants[1:]:
            total = _fma(builder, total, x, constant)
        return total

    return of_floats(1, evaluate)


def device(function: Callable[..., Any], **options: Any) -> Any:
    """Return `function` compiled for calls from kernels only, and always made part of them.

    Its arithmetic is NumPy's. numba would have it take over what the loops that call it allow, such
    as sums in another order.
    """
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, "forceinline": True}
    return numba.njit(error_model="numpy", fastmath=False, **options)(function)


@device
def with_sign_of(size: Any, x: Any) -> Any:
    """Return a float64 of that size with the sign of x."""
    return from_bits_f64((to_bits_f64(size) & ~SIGN) | (to_bits_f64(x) & SIGN))


@device
def with_sign_of_f32(size: Any, x: Any) -> Any:
    """Return a float32 of that size with the sign of x."""
    bits = int32(to_bits_f32(size) & int32(2147483647))
    return from_bits_f32(int32(bits | int32(to_bits_f32(x) & int32(-2147483648))))


def opaque(module: Any, kind: Any, number: int) -> Any:
    """Return where a number is that LLVM does not know, and so cannot reason with."""
    name = f"gpusched.number.{kind}.{number}"
    found = module.globals.get(name)
    if found is None:
        found = ir.GlobalVariable(module, kind, name)
        whole = isinstance(kind, ir.IntType)
        found.initializer = ir.Constant(kind, number if whole else float(number))
        found.linkage = "linkonce"  # Another module's could take its place.
    return found


def _nonzero(builder: Any, x: Any) -> Any:
    zero, one = (builder.load(opaque(builder.module, x.type, n)) for n in (0, 1))
    return builder.select(builder.fcmp_unordered("!=", x, zero), x, one)


nonzero = of_floats(1, _nonzero)
"""Returns x, but 1 where it is zero; LLVM does not know that it is so where x is not zero.

It computes both branches of a choice, and a division by zero in the one that is not taken would
raise the processor's flags.
"""

floor = of_floats(1, partial(llvm, "floor"))
"""Returns the whole number below x, of its dtype; that of `math` is an integer."""
