"""Subnormal numbers as zero, which processors compute with a hundred times as fast."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gpusched.backends.flags import exchange
from gpusched.vectormath.variants import features

_FLUSH = 0x8040
"""Bits of x86's MXCSR: results that are subnormal become zero, and operands are taken for it."""

HAS_FLUSH = bool(features().get("sse"))
"""Whether this processor can be set so; others compute with subnormal numbers."""


@intrinsic
def flush_subnormals(typing_context: Any) -> Any:
    """Take subnormal numbers for zero in this thread; return what was before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not HAS_FLUSH:
            return ir.IntType(32)(0)
        return exchange(builder, lambda before: builder.or_(before, before.type(_FLUSH)))

    return types.int32(), generate


@intrinsic
def restore_subnormals(typing_context: Any, before: Any) -> Any:
    """Compute with subnormal numbers again, if that was so before; errors that arose stay."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if HAS_FLUSH:
            kept = builder.and_(args[0], args[0].type(_FLUSH))
            exchange(builder, lambda now: builder.or_(builder.and_(now, now.type(~_FLUSH)), kept))
        return context.get_dummy_value()

    return types.void(types.int32), generate
