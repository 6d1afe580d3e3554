"""Instructions of AVX-512 that LLVM has no general name for, in loops too; reciprocals."""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import float32

from gpusched.vectormath import variants
from gpusched.vectormath.bits import device, fma, of_floats

HAS_AVX512 = all(variants.features().get(name) for name in ("avx512f", "avx512dq", "avx512vl"))
"""Whether numba compiles for a processor with these instructions."""

_INSTRUCTIONS = {
    "scale": "mask.scalef",
    "exponent": "mask.getexp",
    "mantissa": "mask.getmant",
    "reciprocal_estimate": "rcp14",
    "root_estimate": "rsqrt14",
}
_MANTISSA = 12
"""Its form: in [1, 2), NaN for what is negative, and 1 for both zeros."""
_ROUNDING = 4
"""As the processor is set."""
_BYTE, _WORD = ir.IntType(8), ir.IntType(32)


def _instruction(builder: Any, name: str, values: list[Any], vector: Any, whole: bool) -> Any:
    """Return the result of an instruction on vectors, or on their first elements only."""
    bits = vector.count * (32 if vector.element == ir.FloatType() else 64)
    letter = "s" if vector.element == ir.FloatType() else "d"
    operands = [*values]
    if not whole and len(values) == 1:
        operands.append(values[0])
    if name == "mantissa":
        operands.append(_WORD(_MANTISSA))
    mask = ir.IntType(max(8, vector.count)) if whole else _BYTE
    operands += [ir.Constant(vector, [vector.element(0)] * vector.count), mask(-1)]
    if _INSTRUCTIONS[name].startswith("mask") and (bits == 512 or not whole):
        operands.append(_WORD(_ROUNDING))
    suffix = f"p{letter}.{bits}" if whole else f"s{letter}"
    symbol = f"llvm.x86.avx512.{_INSTRUCTIONS[name]}.{suffix}"
    found = builder.module.globals.get(symbol)
    if found is None:
        kind = ir.FunctionType(vector, [operand.type for operand in operands])
        found = ir.Function(builder.module, kind, symbol)
    return builder.call(found, operands)


def _function(module: Any, name: str, symbol: str, kind: Any, count: int, attribute: str) -> Any:
    """Return a new function of an instruction, on numbers or vectors."""
    known = (*variants.PURE, "speculatable", attribute)
    function = variants.function(module, symbol, kind, count, known)
    # Merged where several modules of a kernel have it.
    function.linkage = "linkonce_odr"
    builder = ir.IRBuilder(function.append_basic_block())
    if isinstance(kind, ir.VectorType):
        builder.ret(_instruction(builder, name, list(function.args), kind, whole=True))
        return function
    vector = ir.VectorType(kind, 4 if kind == ir.FloatType() else 2)
    zeros = ir.Constant(vector, [kind(0)] * vector.count)
    values = [builder.insert_element(zeros, value, _WORD(0)) for value in function.args]
    found = _instruction(builder, name, values, vector, whole=False)
    builder.ret(builder.extract_element(found, _WORD(0)))
    return function


def _emit(name: str, builder: Any, *args: Any) -> Any:
    """Return the call of an instruction's function, which loops have in its form for vectors."""
    module, kind, count = builder.module, args[0].type, len(args)
    symbol = f"{variants.PREFIX}{name}.{'f32' if kind == ir.FloatType() else 'f64'}"
    function = module.globals.get(symbol)
    if function is None:
        function = _function(module, name, symbol, kind, count, "noinline")
        wide = [(f"{symbol}.v{n}", ir.VectorType(kind, n)) for n in variants.lanes(kind)]
        made = [_function(module, name, s, vector, count, "alwaysinline") for s, vector in wide]
        variants.keep(module, made)
    found = builder.call(function, args)
    variants.offer(found, symbol, kind, count)
    return found


exponent = of_floats(1, partial(_emit, "exponent"))
"""The whole number n of 2**n <= |x| < 2**(n + 1), as a float; -inf for 0, inf for inf."""
mantissa = of_floats(1, partial(_emit, "mantissa"))
"""x / 2**exponent(x), in [1, 2); 1 for 0 and inf, NaN for what is negative."""
reciprocal_estimate = of_floats(1, partial(_emit, "reciprocal_estimate"))
"""1/x to 14 bits."""
root_estimate = of_floats(1, partial(_emit, "root_estimate"))
"""1/sqrt(x) to 14 bits."""
scale = of_floats(2, partial(_emit, "scale"))
"""x * 2**floor(n), rounded once, of x and a float n."""


@device
def _refined_f32(x: Any) -> Any:
    y = reciprocal_estimate(x)
    return fma(y, fma(-x, y, float32(1.0)), y)


@device
def _refined_f64(x: Any) -> Any:
    y = reciprocal_estimate(x)
    y = fma(y, fma(-x, y, 1.0), y)
    return fma(y, fma(-x, y, 1.0), y)


@device
def _divided_f32(x: Any) -> Any:
    return float32(1.0) / x


@device
def _divided_f64(x: Any) -> Any:
    return 1.0 / x


reciprocal_f32 = _refined_f32 if HAS_AVX512 else _divided_f32
reciprocal_f64 = _refined_f64 if HAS_AVX512 else _divided_f64
"""1/x of normal numbers whose reciprocals are normal, to about one unit in the last place.

A division takes as long as a dozen multiplications: an estimate and Newton's steps take half of
that.
"""
