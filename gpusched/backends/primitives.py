"""What a generated kernel may call on the CPU, as single LLVM instructions or intrinsics."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gpusched.store import processors
from gpusched.vectormath.bits import llvm, of_floats, opaque

floor, ceil, trunc, rint, sqrt, fabs = (
    of_floats(1, partial(llvm, name)) for name in ("floor", "ceil", "trunc", "rint", "sqrt", "fabs")
)
copysign, minimum, maximum, fmin, fmax = (
    of_floats(2, partial(llvm, name))
    for name in ("copysign", "minimum", "maximum", "minnum", "maxnum")
)
least, greatest = minimum, maximum

fmod = of_floats(2, lambda builder, x, y: builder.frem(x, y))
"""C's fmod: exact, with the sign of `x`."""


def _number_or(builder: Any, x: Any, other: Any) -> Any:
    is_number = builder.fcmp_ordered("ord", x, x)
    # As a constant it would make the joining of values conditional, which is not vectorised.
    nothing = builder.load(opaque(builder.module, x.type, 0))
    return builder.select(is_number, x, builder.fadd(other, nothing))


number_or = of_floats(2, _number_or)
"""Returns the first number, or the other where that is NaN."""


@intrinsic
def is_worse(typing_context: Any, result: Any, operand: Any) -> Any:
    """Return whether a result is NaN and the operand is not, or infinite and the operand finite.

    Without their signs, numbers are in the order of their bits, those of infinity behind those of
    all that is finite, and those of NaN last. A NaN of other bits than the operand's may count as
    worse, too: for that, NumPy repeats its calls for nothing.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = ir.IntType(result.bitwidth)
        rest = ir.Constant(whole, (1 << (result.bitwidth - 1)) - 1)
        sizes = [builder.and_(builder.bitcast(x, whole), rest) for x in args]
        finite = ir.Constant(whole, _LARGEST[result.bitwidth])
        above = builder.icmp_signed(">", sizes[1], finite)
        return builder.icmp_signed(">", sizes[0], builder.select(above, sizes[1], finite))

    alike = isinstance(result, types.Float) and result == operand
    return (types.boolean(result, operand), generate) if alike else None


_LARGEST = {32: 0x7F7FFFFF, 64: 0x7FEFFFFFFFFFFFFF}
"""By width, the bits of the largest number."""


@intrinsic
def unseen(typing_context: Any, x: Any) -> Any:
    """Return False, which LLVM cannot know unless it computes x: none of its bits are in zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = ir.IntType(x.bitwidth)
        zero = builder.load(opaque(builder.module, whole, 0))
        return builder.icmp_unsigned("!=", builder.and_(builder.bitcast(args[0], whole), zero),
                                     ir.Constant(whole, 0))  # fmt: skip

    return (types.boolean(x), generate) if isinstance(x, types.Float) else None


@intrinsic
def bits(typing_context: Any, x: Any) -> Any:
    """Return the width of an integer in bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), x.bitwidth)

    return (types.int64(x), generate) if isinstance(x, types.Integer) else None


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


@intrinsic
def shift(typing_context: Any, array: Any, count: Any) -> Any:
    """Return `array` starting `count` elements further; `count` may be negative."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        moved = context.make_array(array)(context, builder, args[0])
        moved.data = builder.gep(moved.data, [args[1]])
        # A borrowed view: the kernel's caller keeps the array alive, so nothing is counted.
        for owner in ("meminfo", "parent"):
            setattr(moved, owner, ir.Constant(getattr(moved, owner).type, None))
        return moved._getvalue()

    return array(array, types.int64), generate


@intrinsic
def element(typing_context: Any, array: Any, index: Any) -> Any:
    """Return element `index`, which may be negative and means before the first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, *args)
        return context.unpack_value(builder, array.dtype, pointer)

    return array.dtype(array, types.int64), generate


_READS_AHEAD = processors.reads_ahead()


@numba.njit(no_cfunc_wrapper=True)
def spread(number: int, count: int, places: int) -> int:
    """Return which of `count` blocks is taken next, if they come from some places in turn.

    Each of ``range(count)`` is the answer to one `number` of ``range(count)``: `number` itself
    on processors that are faster so.
    """
    share = 0 if _READS_AHEAD else count // places
    return number % places * share + number // places if number < share * places else number


@numba.njit(no_cfunc_wrapper=True)
def ahead(distance: int) -> int:
    """Return how far ahead to ask for what comes in sequence: 0 if the processor does so itself."""
    return 0 if _READS_AHEAD else distance


@numba.njit(error_model="numpy", fastmath=False, no_cfunc_wrapper=True)
def compensated_add(total: float, lost: float, value: float) -> tuple[float, float]:
    """Add `value` to `total` and what rounding loses to `lost` (Knuth, 1969).

    Infinities and NaN lose nothing, so that no error is raised but that of the sum.
    """
    new = total + value
    finite = abs(new) != math.inf and new == new
    a, b = (total, value) if finite else (0.0, 0.0)
    whole = a + b
    from_value = whole - a
    rest = (a - (whole - from_value)) + (b - from_value)
    return new, lost + rest
