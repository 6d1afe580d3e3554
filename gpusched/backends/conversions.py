"""Conversions in kernels, as LLVM's instructions: of float16, and of floats to integers.

float16 is a type of elements that is converted, and not computed with; it is rounded to even, once.
What no integer can hold becomes what NumPy makes of it.

Processors with F16C, and all of AArch64, have instructions for float16. Elsewhere they are made of
others; LLVM would call functions of its own runtime library there, which kernels have not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from gpusched.emit.floatingpoint import IS_ARM, IS_X86

_HALF, _SINGLE, _DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_BITS16, _BITS32, _BITS64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)

_KEPT = 29
"""Low bits of a float64 of which float32 need know only whether one is set."""


def widened(builder: Any, bits: Any) -> Any:
    """Return the float32 of a float16, by the processor's instruction."""
    return builder.fpext(builder.bitcast(bits, _HALF), _SINGLE)


def narrowed(builder: Any, number: Any) -> Any:
    """Return the bits of the float16 that is nearest to a float32, by the instruction."""
    return builder.bitcast(builder.fptrunc(number, _HALF), _BITS16)


def widened_by_steps(builder: Any, bits: Any) -> Any:
    """Return the float32 of a float16, by integers and one exact multiplication."""
    wide = builder.zext(bits, _BITS32)
    sign = builder.shl(builder.and_(wide, _BITS32(0x8000)), _BITS32(16))
    rest = builder.shl(builder.and_(wide, _BITS32(0x7FFF)), _BITS32(13))
    scaled = builder.fmul(builder.bitcast(rest, _SINGLE), _SINGLE(2.0**112))
    endless = builder.icmp_unsigned(">=", rest, _BITS32(0x0F800000))
    exponent = builder.select(endless, _BITS32(0x7F800000), _BITS32(0))
    whole = builder.or_(builder.or_(builder.bitcast(scaled, _BITS32), exponent), sign)
    return builder.bitcast(whole, _SINGLE)


def narrowed_by_steps(builder: Any, number: Any) -> Any:
    """Return the bits of the float16 that is nearest to a float32, by integers."""
    bits = builder.bitcast(number, _BITS32)
    sign = builder.and_(builder.lshr(bits, _BITS32(16)), _BITS32(0x8000))
    size = builder.and_(bits, _BITS32(0x7FFFFFFF))
    # Of a normal one: half of its last bit is added, less one where that bit is 0.
    odd = builder.and_(builder.lshr(size, _BITS32(13)), _BITS32(1))
    rounded = builder.add(builder.add(size, _BITS32(0xFFF)), odd)
    normal = builder.sub(builder.lshr(rounded, _BITS32(13)), _BITS32(112 << 10))
    beyond = builder.icmp_unsigned(">", normal, _BITS32(0x7C00))
    normal = builder.select(beyond, _BITS32(0x7C00), normal)
    # Of a subnormal one: the last bit of 0.5 is worth as much as that of the float16.
    moved = builder.fadd(builder.bitcast(size, _SINGLE), _SINGLE(0.5))
    subnormal = builder.sub(builder.bitcast(moved, _BITS32), builder.bitcast(_SINGLE(0.5), _BITS32))
    tiny = builder.icmp_unsigned("<", size, _BITS32(0x38800000))
    found = builder.select(tiny, subnormal, normal)
    nan = builder.icmp_unsigned(">", size, _BITS32(0x7F800000))
    found = builder.select(nan, _BITS32(0x7E00), found)
    return builder.trunc(builder.or_(found, sign), _BITS16)


def to_single(builder: Any, number: Any) -> Any:
    """Return a float32 that is rounded to the same float16 as a float64 is.

    A float32 has so many more bits than a float16 that only the last one need say whether there are
    more (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008: round to odd).
    """
    if number.type == _SINGLE:
        return number
    bits = builder.bitcast(number, _BITS64)
    low = builder.and_(bits, _BITS64((1 << _KEPT) - 1))
    more = builder.icmp_unsigned("!=", low, _BITS64(0))
    sticky = builder.select(more, _BITS64(1 << _KEPT), _BITS64(0))
    high = builder.and_(bits, _BITS64(-1 << _KEPT))
    return builder.fptrunc(builder.bitcast(builder.or_(high, sticky), _DOUBLE), _SINGLE)


Conversion = Callable[[Any, Any], Any]


def conversions(
    compiler: tuple[Any, Any], element: Any, widened: Conversion, narrowed: Conversion
) -> tuple[Any, Any, Any]:
    """Return ``from_float16``, ``to_float16`` and ``round_to_float16`` for a compiler.

    Parameters
    ----------
    compiler
        Its ``intrinsic`` and its ``types``: numba's, or numba-cuda's.
    element
        The type that it has for elements of float16.
    widened, narrowed
        Make instructions that convert an element's bits to float32, and that back.
    """
    intrinsic, types = compiler

    @intrinsic
    def from_float16(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return widened(builder, args[0])

        return (types.float32(x), generate) if x == element else None

    @intrinsic
    def to_float16(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return narrowed(builder, to_single(builder, args[0]))

        return (element(x), generate) if isinstance(x, types.Float) else None

    @intrinsic
    def round_to_float16(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return widened(builder, narrowed(builder, to_single(builder, args[0])))

        return (types.float32(x), generate) if isinstance(x, types.Float) else None

    return from_float16, to_float16, round_to_float16


def to_integer(compiler: tuple[Any, Any], name: str) -> Any:
    """Return ``to_int32`` or ``to_int64`` for a compiler, as `conversions` takes it.

    LLVM's conversion says nothing of what no integer can hold: of an integer that was made a float,
    LLVM takes the lower bits. NVIDIA's instruction gives the nearest integer, and 0 for NaN, as
    those of other processors do; x86's gives the lowest.
    """
    intrinsic, types = compiler
    result = getattr(types, name.removeprefix("to_"))
    if not IS_X86:
        return result
    bits = result.bitwidth

    @intrinsic
    def function(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (x,) = args
            half = 2.0 ** (bits - 1)
            lowest, beyond = ir.Constant(x.type, -half), ir.Constant(x.type, half)
            above = builder.fcmp_ordered(">", x, lowest)
            inside = builder.and_(above, builder.fcmp_ordered("<", x, beyond))
            return builder.fptosi(builder.select(inside, x, lowest), ir.IntType(bits))

        return (result(x), generate) if isinstance(x, types.Float) else None

    return function


HAS_INSTRUCTIONS = IS_ARM or bool(llvmlite.binding.get_host_cpu_features().get("f16c"))
"""Whether this processor converts by one instruction."""


class Float16(types.Type):
    """Elements of an array that is float16; numba has no numbers of that dtype on CPUs."""

    def __init__(self) -> None:
        super().__init__(name="float16")


@register_model(Float16)
class _Model(models.PrimitiveModel):
    """Two bytes."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(16))


ELEMENT = Float16()

COMPILER = intrinsic, types
"""What `conversions` takes of numba."""
BY_INSTRUCTIONS = widened, narrowed
BY_STEPS = widened_by_steps, narrowed_by_steps
from_float16, to_float16, round_to_float16 = conversions(
    COMPILER, ELEMENT, *(BY_INSTRUCTIONS if HAS_INSTRUCTIONS else BY_STEPS)
)
to_int32, to_int64 = (to_integer(COMPILER, name) for name in ("to_int32", "to_int64"))
