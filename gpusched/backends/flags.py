"""The processor's floating-point flags and modes, by thread.

Flags show which errors instructions have raised; in one mode, subnormal numbers are taken for zero,
with which processors compute up to a hundred times as fast. x86 has both in MXCSR; elsewhere the C
library gives the errors, and there is no such mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gpusched.emit.floatingpoint import HAS_FLAGS, IS_X86
from gpusched.vectormath.variants import features

FLAGS = 0x3F
"""Bits of MXCSR that instructions set, and never clear."""


def _exchange(builder: Any, change: Callable[[Any], Any]) -> Any:
    """Set the register to what `change` makes of it; return what it was."""
    place = builder.alloca(ir.IntType(32))
    before = _read(builder, place)
    builder.store(change(before), place)
    builder.call(_function(builder, "ldmxcsr"), [_address(builder, place)])
    return before


def _read(builder: Any, place: Any = None) -> Any:
    """Return what the register is."""
    place = place or builder.alloca(ir.IntType(32))
    builder.call(_function(builder, "stmxcsr"), [_address(builder, place)])
    return builder.load(place)


def _address(builder: Any, place: Any) -> Any:
    return builder.bitcast(place, ir.IntType(8).as_pointer())


def _function(builder: Any, name: str) -> Any:
    name = f"llvm.x86.sse.{name}"
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


@intrinsic
def _clear_mxcsr(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _exchange(builder, lambda before: builder.and_(before, before.type(~FLAGS)))
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _read_mxcsr(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.and_(_read(builder), ir.IntType(32)(FLAGS))
        return builder.zext(found, ir.IntType(64))

    return types.int64(), generate


_feclearexcept = types.ExternalFunction("feclearexcept", types.int32(types.int32))
_fetestexcept = types.ExternalFunction("fetestexcept", types.int32(types.int32))
_ALL = 31
"""Bits of the C library's ``fenv.h`` on AArch64: invalid, division by zero, overflow, underflow,
inexact."""


@numba.njit(no_cfunc_wrapper=True, no_cpython_wrapper=True)
def clear_floating_point_errors() -> None:
    """Forget the floating-point errors of this thread so far."""
    if IS_X86:
        _clear_mxcsr()
    elif HAS_FLAGS:
        _feclearexcept(_ALL)


@numba.njit(no_cfunc_wrapper=True, no_cpython_wrapper=True)
def floating_point_errors() -> int:
    """Return the errors since they were cleared, as bits of `gpusched.emit.floatingpoint`."""
    if IS_X86:
        return _read_mxcsr()
    if HAS_FLAGS:
        found = int(_fetestexcept(_ALL))
        return (found & 1) | (found & 14) << 1
    return 0


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
        return _exchange(builder, lambda before: builder.or_(before, before.type(_FLUSH)))

    return types.int32(), generate


@intrinsic
def restore_subnormals(typing_context: Any, before: Any) -> Any:
    """Compute with subnormal numbers again, if that was so before; errors that arose stay."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if HAS_FLUSH:
            kept = builder.and_(args[0], args[0].type(_FLUSH))
            _exchange(builder, lambda now: builder.or_(builder.and_(now, now.type(~_FLUSH)), kept))
        return context.get_dummy_value()

    return types.void(types.int32), generate
