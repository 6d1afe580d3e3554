"""Kernels on the CPU: the generated source compiled by numba, without the GIL."""

from __future__ import annotations

import math
import types as python_types
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.compiler import Compiler

from gpusched.adapters import numba as numba_code
from gpusched.backends import (
    conversions,
    flags,
    objectcode,
    primitives,
    scalar_math,
    silent_nans,
    streaming,
)
from gpusched.emit import generate, hostloops
from gpusched.emit.choices import interleave, vector_bits
from gpusched.emit.floatingpoint import INVALID
from gpusched.emit.kernel import FAST, Kernel
from gpusched.emit.policy import WIDEST
from gpusched.vectormath import FEWER_STEPS, FUNCTIONS, by_dtype, division, variants
from gpusched.vectormath.bits import device


class Tuned(Compiler):
    """Numba's pipeline with vectors as wide as the machine's, and arrays that do not overlap.

    Outputs are always new arrays; inputs may overlap each other, but are only read.
    """

    vector = WIDEST
    """Bits of the vectors."""
    interleave = 0
    """Vectors that loops compute at once; 0 leaves it to LLVM."""
    apart = False
    """Whether only the machine code is wanted, and nothing in this process calls it."""
    silent = False
    """Whether comparisons must raise no floating-point errors for NaN."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, result: Any,
                 flags: Any, locals: Any) -> None:  # fmt: skip
        flags.noalias = True
        library = target.codegen().create_library("gpusched.kernel")
        add_module = library.add_ir_module
        preferred = f'"prefer-vector-width"="{self.vector}"'

        def add_wide(module: Any) -> None:
            for function in module.functions:
                if not function.is_declaration:
                    # llvmlite's own `add` admits only attributes without a value.
                    set.add(function.attributes, preferred)
            _ask_for(module, self.interleave)
            add_module(module)

        library.add_ir_module = add_wide
        if self.apart:
            numba_code.keep_apart(library, flags)
        numba_code.skip_declared(library)
        variants.inline(library)
        if self.silent:
            silent_nans.silence(library)
        super().__init__(typing, target, library, args, result, flags, locals)


def _ask_for(module: Any, count: int) -> None:
    """Have every loop of a module, as numba has just made it, compute so many vectors at once.

    Parameters
    ----------
    module
        In llvmlite's form.
    count
        0 leaves it to LLVM.
    """
    if not count:
        return
    for function in module.functions:
        for branch in _back_edges(function):
            branch.set_metadata("llvm.loop", _wish(module, count))


def _back_edges(function: Any) -> list[Any]:
    """Return the branches that go back to the start of a loop."""
    found: list[Any] = []
    if function.is_declaration:
        return found
    open_blocks, seen = set(), set()
    waiting = [(function.entry_basic_block, False)]
    while waiting:
        block, left = waiting.pop()
        if left:
            open_blocks.discard(block)
        elif block not in seen:
            seen.add(block)
            open_blocks.add(block)
            targets = _targets(block)
            if any(target in open_blocks for target in targets):
                found.append(block.terminator)
            waiting.append((block, True))
            waiting += [(target, False) for target in targets]
    return found


def _targets(block: Any) -> list[Any]:
    operands = block.terminator.operands if block.terminator is not None else []
    return [operand for operand in operands if isinstance(operand, ir.Block)]


def _wish(module: Any, count: int) -> Any:
    wish = module.add_metadata(["llvm.loop.interleave.count", ir.IntType(32)(count)])
    # What says something of a loop names itself first.
    loop = ir.MDValue(module, [], name=str(len(module.metadata)))
    loop.operands = (loop, wish)
    return loop


@lru_cache(maxsize=32)
def pipeline(
    vector: int | None, interleave: int = 0, apart: bool = False, silent: bool = False
) -> type[Tuned]:
    """Return the pipeline for vectors of so many bits, as wide as they get if None."""
    choices = {"vector": vector or WIDEST, "interleave": interleave, "apart": apart,
               "silent": silent}  # fmt: skip
    return type("Tuned", (Tuned,), choices)


@cache
def _inlined(apart: bool) -> type[numba_code.Inlined]:
    """Return the pipeline for functions that become part of such kernels."""
    return type("Inlined", (numba_code.Inlined,), {"apart": apart})


@lru_cache(maxsize=256)
def _math(name: str) -> Any:
    """Return the vectorised function of that name, or the C library's through numba."""
    if name in FUNCTIONS:
        return FUNCTIONS[name].function
    function = scalar_math.libm_function(name)
    return device(function) if isinstance(function, python_types.FunctionType) else function


_PRIMITIVES = [*hostloops.BOUND, *scalar_math.ARITHMETIC, *scalar_math.BITWISE]


def namespace(text: str, fast: bool = False) -> dict[str, Any]:
    """Return the names a kernel's source uses, bound for numba.

    Parameters
    ----------
    text
        The source.
    fast
        Whether functions may be less exact.
    """
    called = generate.called_names(text)
    bound = vars(primitives) | vars(flags) | vars(streaming)
    found: dict[str, Any] = {name: bound[name] for name in _PRIMITIVES}
    found |= {name: getattr(numba, name) for name in scalar_math.DTYPES}
    found |= {name: getattr(conversions, name) for name in scalar_math.INTEGERS}
    found |= {name: getattr(conversions, name) for name in scalar_math.HALVES}
    found |= {"frexp": math.frexp, "ldexp": math.ldexp, "nextafter": np.nextafter}
    found |= {"inf": math.inf, "nan": math.nan}
    found |= {name: by_dtype(name) for name in {"exp", "exp2", "log1p"} & called}
    found |= {"floor_divide": division.floor_divide, "remainder": division.remainder}
    if "fmod_f64" in FUNCTIONS and "fmod" in called:
        found["fmod"] = by_dtype("fmod", 2)
    found |= {name: _math(name) for name in scalar_math.math_names() if name in called}
    fewer = FEWER_STEPS if fast else {}
    found |= {name: fewer[name].function for name in fewer.keys() & found.keys()}
    return found


def _type(dtype: str) -> Any:
    if dtype == "float16":
        return conversions.ELEMENT
    return getattr(types, "boolean" if dtype == "bool" else dtype)


def signature(kernel: Kernel) -> Any:
    """Return the numba signature: arrays as windows, constants, then 64-bit sizes and strides."""
    # Chunks that came over the network lie at any address.
    arrays = [
        types.Array(_type(i.dtype), 1, "C", readonly=True, aligned=False) for i in kernel.inputs
    ]
    arrays += [types.Array(_type(o.dtype), 1, "C") for o in kernel.outputs]
    constants = [_type(p) for p in kernel.parameters]
    numbers = len(kernel.loops) + len(generate.stride_names(kernel)) + kernel.resumes
    result = types.int64 if kernel.checked else types.void
    return result(*arrays, *constants, *[types.int64] * numbers)


def compile_code(kernel: Kernel, text: str, filename: str) -> bytes | None:
    """Compile a kernel's source to machine code that runs without numba.

    Parameters
    ----------
    kernel
        What `text` was generated from.
    text
        Its source, defining ``point`` and ``kernel``.
    filename
        The file of the source, named in errors.

    Returns
    -------
    bytes or None
        What `gpusched.backends.native.load` makes a kernel of, here or in another process on
        the same kind of processor; None if the kernel calls what only numba has, so that
        `compile_here` is the way to run it.
    """
    function = _dispatcher(kernel, text, filename, apart=True)
    return objectcode.object_code(function, signature(kernel), tiled=len(kernel.loops) > 1)


def compile_here(kernel: Kernel, text: str, filename: str) -> Callable[..., int | None]:
    """Compile a kernel's source; return what numba has to call in this process only.

    Raises
    ------
    NotImplementedError
        If it takes float16, which numba has no arrays of.
    """
    if kernel.halves:
        raise NotImplementedError("numba calls no kernels of float16, and their code is not loaded")
    function = _dispatcher(kernel, text, filename, apart=False)
    return objectcode.specialise(function, signature(kernel))


def allowed_in_loops(kernel: Kernel) -> Any:
    """Return what LLVM may do with the arithmetic of loops, which join values in no order.

    `point`, and what joins exactly, are functions of their own, whose arithmetic is NumPy's.
    """
    return {"reassoc", "contract"} if kernel.reduces else False


def _dispatcher(kernel: Kernel, text: str, filename: str, apart: bool) -> Any:
    """Return numba's function of a kernel; a plain one where NUMBA_DISABLE_JIT is set."""
    halves = generate.called_names(text).intersection(scalar_math.HALVES)
    if halves and not conversions.HAS_HALVES:
        raise NotImplementedError("this processor has no instructions for float16")
    found = namespace(text, kernel.mathematics == FAST) | {"__name__": __name__}
    for name, function in generate.defined_functions(kernel).items():
        found[name] = function.for_cpu
    exec(compile(text, filename, "exec"), found)
    for name, value in list(found.items()):
        if not isinstance(value, python_types.FunctionType):
            continue
        if value.__code__.co_filename == filename:
            # Symbols of code that was made in several processes must not meet.
            value.__qualname__ = f"{name}_{kernel.digest}"
            if name != "kernel":
                found[name] = device(value, pipeline_class=_inlined(apart))
    options = {"error_model": "numpy", "nogil": True, "fastmath": allowed_in_loops(kernel)}
    searches = kernel.tables and silent_nans.by_condition_codes()
    silent = bool(kernel.flags & INVALID or searches)
    chosen = pipeline(vector_bits(kernel), interleave(kernel), apart, silent)
    return numba.njit(no_cfunc_wrapper=True, **options, pipeline_class=chosen)(found["kernel"])
