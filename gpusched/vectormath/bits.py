"""Numbers as their bits, signs, fused multiply-add and polynomials: what numba's Python lacks."""

from __future__ import annotations

import platform
from collections.abc import Callable
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

HAS_FMA = platform.machine() in ("aarch64", "arm64") or bool(
    llvmlite.binding.get_host_cpu_features().get("fma")
)
"""Whether this processor multiplies and adds in one step; a C library call would be slow."""


@intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _fma(builder, *args)

    return (a(a, b, c), generate) if isinstance(a, types.Float) and a == b == c else None


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    if not HAS_FMA:
        return builder.fadd(builder.fmul(a, b), c)
    function_type = ir.FunctionType(a.type, [a.type] * 3)
    function = builder.module.declare_intrinsic("llvm.fma", [a.type], fnty=function_type)
    return builder.call(function, [a, b, c])


def polynomial(*coefficients: float) -> Any:
    """Return a function of one number: the polynomial with these coefficients, highest power first.

    They are rounded to the number's dtype. `tests.vectormath.coefficients` finds them.
    """

    @intrinsic
    def evaluate(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            constants = [ir.Constant(args[0].type, c) for c in coefficients]
            total = constants[0]
            for constant in constants[1:]:
                total = _fma(builder, total, args[0], constant)
            return total

        return (x(x), generate) if isinstance(x, types.Float) else None

    return evaluate


def device(function: Callable[..., Any], **options: Any) -> Any:
    """Return `function` compiled for calls from kernels only, and always made part of them."""
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, "forceinline": True}
    return numba.njit(error_model="numpy", **options)(function)


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


@intrinsic
def nonzero(typing_context: Any, x: Any) -> Any:
    """Return x, but 1 where it is zero; LLVM does not know that it is so where x is not zero.

    It computes both branches of a choice, and a division by zero in the one that is not taken
    would raise the processor's flags.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero, one = (builder.load(opaque(builder.module, args[0].type, n)) for n in (0, 1))
        return builder.select(builder.fcmp_unordered("!=", args[0], zero), args[0], one)

    return (x(x), generate) if isinstance(x, types.Float) else None


@intrinsic
def floor(typing_context: Any, x: Any) -> Any:
    """Return the whole number below x, of its dtype; that of `math` is an integer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        function_type = ir.FunctionType(kind, [kind])
        function = builder.module.declare_intrinsic("llvm.floor", [kind], fnty=function_type)
        return builder.call(function, args)

    return (x(x), generate) if isinstance(x, types.Float) else None
