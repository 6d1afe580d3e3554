"""Conversions in kernels on the CPU: to integers, and of float16.

float16 is a type of elements that is converted, and not computed with.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from gpusched.backends import halves

HAS_INSTRUCTIONS = platform.machine() in ("aarch64", "arm64") or bool(
    llvmlite.binding.get_host_cpu_features().get("f16c")
)
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
"""What `gpusched.backends.halves.conversions` takes of numba."""
BY_INSTRUCTIONS = halves.widened, halves.narrowed
BY_STEPS = halves.widened_by_steps, halves.narrowed_by_steps
from_float16, to_float16, round_to_float16 = halves.conversions(
    COMPILER, ELEMENT, *(BY_INSTRUCTIONS if HAS_INSTRUCTIONS else BY_STEPS)
)
to_int32, to_int64 = (halves.to_integer(COMPILER, name) for name in ("to_int32", "to_int64"))

__all__ = ["ELEMENT", "from_float16", "round_to_float16", "to_float16", "to_int32", "to_int64"]
