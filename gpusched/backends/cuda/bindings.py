"""The names that kernels use, bound for numba-cuda: numbers, positions in the grid, mathematics.

Mathematical functions are those of libdevice, chosen by the operands' dtype: ``exp`` of a float32
never goes through float64.
"""

from __future__ import annotations

import math
import types as python_types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from llvmlite import ir

from gpusched.backends import conversions, scalar_math
from gpusched.backends.cuda import vectorload
from gpusched.backends.cuda.compiler import device_function
from gpusched.backends.cuda.numba_cuda import (
    cgutils,
    cuda,
    intrinsic,
    nvvmutils,
    types,
)
from gpusched.emit import generate
from gpusched.emit.kernel import Kernel
from gpusched.emit.operations import BINARY_MATH, UNARY_MATH, ScalarFunction
from gpusched.emit.skeleton.source_lines import EXTRAS, POSITIONS

_NONE: Mapping[str, ScalarFunction] = {}


def _call(builder: Any, name: str, *args: Any) -> Any:
    """Return libdevice's function of the arguments' dtype."""
    kind = args[0].type
    known = "tgamma" if name == "gamma" else scalar_math.in_math(name)
    symbol = f"__nv_{known}{'f' if kind == ir.FloatType() else ''}"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), symbol
    )
    return builder.call(function, args)


def _unary(name: str) -> Callable[..., Any]:
    @intrinsic
    def function(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _call(builder, name, *args)

        return (x(x), generate) if isinstance(x, types.Float) else None

    return function


def _binary(name: str) -> Callable[..., Any]:
    @intrinsic
    def function(typing_context: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _call(builder, name, *args)

        return (x(x, y), generate) if isinstance(x, types.Float) and x == y else None

    return function


@intrinsic
def expit(typing_context: Any, x: Any) -> Any:
    """Return the logistic function, by the exponential of a number that is never positive."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero, one = ir.Constant(args[0].type, 0.0), ir.Constant(args[0].type, 1.0)
        small = _call(builder, "exp", builder.fsub(zero, _call(builder, "fabs", args[0])))
        upper = builder.fdiv(one, builder.fadd(one, small))
        negative = builder.fcmp_ordered("<", args[0], zero)
        return builder.select(negative, builder.fmul(small, upper), upper)

    return (x(x), generate) if isinstance(x, types.Float) else None


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller number, or NaN if either is."""
    return a if a < b or a != a else b


def maximum(a: Any, b: Any) -> Any:
    """Return the larger number, or NaN if either is."""
    return a if a > b or a != a else b


def floor_divide(a: Any, b: Any) -> Any:
    """Return the quotient, rounded down."""
    return a // b


def remainder(a: Any, b: Any) -> Any:
    """Return what is left of a division that is rounded down."""
    return a % b


@intrinsic
def bits(typing_context: Any, x: Any) -> Any:
    """Return the width of an integer in bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), x.bitwidth)

    return (types.int64(x), generate) if isinstance(x, types.Integer) else None


@intrinsic
def shift(typing_context: Any, pointer: Any, count: Any) -> Any:
    """Return `pointer` moved by `count` elements, which may be negative."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), generate


def _position(register: str) -> Callable[..., Any]:
    @intrinsic
    def position(typing_context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.zext(nvvmutils.call_sreg(builder, register), ir.IntType(64))

        return types.int64(), generate

    return position


HALF = types.uint16
"""Elements of float16: their bits, which are converted, and not computed with."""
_BITS, _SINGLE = ir.IntType(16), ir.FloatType()


def _convert(builder: Any, name: str, result: Any, value: Any) -> Any:
    """Return what one of LLVM's functions gives, which takes and returns bits and float32.

    NVVM has them: NVVM IR specification, "Half Precision Floating Point Intrinsics".
    """
    kind = ir.FunctionType(result, [value.type])
    module = builder.module
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return builder.call(function, [value])


def _widened(builder: Any, bits: Any) -> Any:
    return _convert(builder, "llvm.convert.from.fp16.f32", _SINGLE, bits)


def _narrowed(builder: Any, number: Any) -> Any:
    return _convert(builder, "llvm.convert.to.fp16.f32", _BITS, number)


_HALVES = dict(
    zip(
        scalar_math.HALVES,
        conversions.conversions((intrinsic, types), HALF, _widened, _narrowed),
        strict=True,
    )
)


@lru_cache(maxsize=1)
def namespace() -> dict[str, Any]:
    """Return every name that a kernel may use; not to be changed."""
    found = {name: getattr(types, name) for name in [*scalar_math.DTYPES, "boolean"]}
    for word, register in POSITIONS.items():
        found |= {f"{word}_{d}": _position(f"{register}.{d}") for d in "xyz"}
    unary = ["floor", "ceil", "trunc", "rint", "sqrt", "fabs", "exp", "exp2", "log1p"]
    binary = ["fmod", "copysign", "fmin", "fmax", "nextafter"]
    found |= {name: _unary(name) for name in unary} | {name: _binary(name) for name in binary}
    written = (minimum, maximum, floor_divide, remainder)
    found |= {each.__name__: device_function(each) for each in written}
    for width in ("f32", "f64"):
        found |= {f"{name}_{width}": _unary(name) for name in UNARY_MATH}
        found |= {f"{name}_{width}": _binary(name) for name in BINARY_MATH}
        found[f"expit_{width}"] = expit
    found |= {"bits": bits, "shift": shift, "inf": math.inf, "nan": math.nan}
    found |= {"frexp": math.frexp, "ldexp": math.ldexp}
    for name in scalar_math.INTEGERS:
        found[name] = conversions.to_integer((intrinsic, types), name)
    found |= _HALVES
    found |= {"barrier": cuda.syncthreads, "cuda": cuda}
    return found | vectorload.namespace()


def signature(kernel: Kernel) -> tuple[Any, ...]:
    """Return the types of a kernel's arguments: pointers, constants, 64-bit numbers."""
    dtypes = [operand.dtype for operand in kernel.operands]
    pointers = [types.CPointer(_type(dtype)) for dtype in dtypes]
    constants = [_type(dtype) for dtype in kernel.parameters]
    numbers = len(generate.arguments(kernel)) + len(EXTRAS) - len(pointers) - len(constants)
    return (*pointers, *constants, *[types.int64] * numbers)


def _type(dtype: str) -> Any:
    if dtype == "float16":
        return HALF
    return types.boolean if dtype == "bool" else getattr(types, dtype)


def load(
    text: str, filename: str, name: str, defined: Mapping[str, ScalarFunction] = _NONE
) -> Callable[..., None]:
    """Return the kernel function that `text` defines, called `name`, ready to be compiled.

    `defined` are the users' functions that it calls.
    """
    found = dict(namespace()) | {key: value.for_cuda for key, value in defined.items()}
    exec(compile(text, filename, "exec"), found)
    for key, value in list(found.items()):
        if isinstance(value, python_types.FunctionType) and value.__code__.co_filename == filename:
            value.__module__ = "gpusched.generated"
            if key != "kernel":
                found[key] = device_function(value)
    kernel: Callable[..., None] = found["kernel"]
    kernel.__name__ = kernel.__qualname__ = name
    return kernel
