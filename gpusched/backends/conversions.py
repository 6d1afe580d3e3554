"""Conversions in kernels, as LLVM's instructions: of float16, and of floats to integers.

float16 is a type of elements that is converted, and not computed with; it is rounded to even, once.
What no integer can hold becomes what NumPy makes of it. Processors with F16C (of 2012 and later),
and all of AArch64, have instructions for float16; elsewhere NumPy computes what has any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from gpusched.emit.floatingpoint import IS_ARM, IS_X86
from gpusched.vectormath.variants import features

_HALF, _SINGLE, _DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_BITS16, _BITS64 = ir.IntType(16), ir.IntType(64)

_KEPT = 29
"""Low bits of a float64 of which float32 need know only whether one is set."""


def widened(builder: Any, bits: Any) -> Any:
    """Return the float32 of a float16, by the processor's instruction."""
    return builder.fpext(builder.bitcast(bits, _HALF), _SINGLE)


def narrowed(builder: Any, number: Any) -> Any:
    """Return the bits of the float16 that is nearest to a float32, by the instruction."""
    _define_truncation(builder.module)
    return builder.bitcast(builder.fptrunc(number, _HALF), _BITS16)


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


def _define_truncation(module: Any) -> None:
    """Define what LLVM calls for float64 -> float16, for which x86 has no instruction.

    It makes such a conversion by itself, for nothing but the sign: where a float64 that `copysign`
    has made, as in cube roots, becomes a float32 and then a float16, it moves the sign last.
    """
    if not IS_X86 or _TRUNCATION in module.globals:
        return
    function = ir.Function(module, ir.FunctionType(_HALF, [_DOUBLE]), _TRUNCATION)
    function.linkage = "weak_odr"  # Kept although nothing calls it yet; one for all modules.
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.fptrunc(to_single(builder, function.args[0]), _HALF))


_TRUNCATION = "__truncdfhf2"
"""Its name in LLVM's runtime library, which kernels have not."""

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


HAS_HALVES = IS_ARM or bool(features().get("f16c"))
"""Whether this processor converts float16; LLVM would call functions that kernels have not."""


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
from_float16, to_float16, round_to_float16 = conversions(COMPILER, ELEMENT, widened, narrowed)
to_int32, to_int64 = (to_integer(COMPILER, name) for name in ("to_int32", "to_int64"))
