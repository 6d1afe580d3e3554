"""float16 in kernels on GPUs: its bits, which are converted, and not computed with.

NVVM has the conversions as functions of LLVM's: NVVM IR specification, "Half Precision Floating
Point Intrinsics".
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpusched.backends import halves
from gpusched.backends.cuda.numba_cuda import intrinsic, types

ELEMENT = types.uint16
_BITS, _SINGLE = ir.IntType(16), ir.FloatType()


def _convert(builder: Any, name: str, result: Any, value: Any) -> Any:
    """Return what one of LLVM's functions gives, which takes and returns bits and float32."""
    kind = ir.FunctionType(result, [value.type])
    module = builder.module
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return builder.call(function, [value])


def _widened(builder: Any, bits: Any) -> Any:
    return _convert(builder, "llvm.convert.from.fp16.f32", _SINGLE, bits)


def _narrowed(builder: Any, number: Any) -> Any:
    return _convert(builder, "llvm.convert.to.fp16.f32", _BITS, number)


from_float16, to_float16, round_to_float16 = halves.conversions(
    (intrinsic, types), ELEMENT, _widened, _narrowed
)

__all__ = ["ELEMENT", "from_float16", "round_to_float16", "to_float16"]
