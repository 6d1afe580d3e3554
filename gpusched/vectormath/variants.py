"""Functions that loops call on whole vectors ("vector function ABI").

A call stops LLVM from vectorising a loop, unless the function has variants that take a whole
vector.  Once loops are vectorised the variants become part of them, so that a call does not cost
the vectors in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir

from gpusched.adapters.numba import after_optimising

PREFIX = "gpusched.vector."
"""Of the names of these functions."""
PURE = ("nounwind", "memory(none)", "willreturn")
"""What LLVM must know to move their calls."""


def features() -> dict[str, bool]:
    """Return the processor's features that numba compiles for; a user may have named fewer."""
    chosen = numba.config.CPU_FEATURES
    if chosen is None:
        return dict(llvmlite.binding.get_host_cpu_features())
    return {word[1:]: word[0] == "+" for word in chosen.split(",") if word}


def lanes(kind: Any) -> tuple[int, ...]:
    """Return the lengths of vectors that loops on this machine have."""
    in_half = 4 if features().get("avx512f") else 2
    return tuple(n * (2 if kind == ir.FloatType() else 1) for n in (in_half, 2 * in_half))


def function(module: Any, name: str, kind: Any, count: int, attributes: Sequence[str]) -> Any:
    """Return a new function from `count` numbers (or vectors) of a type to one."""
    found = ir.Function(module, ir.FunctionType(kind, [kind] * count), name)
    for attribute in attributes:
        # llvmlite's own `add` does not know them all.
        set.add(found.attributes, attribute)
    return found


def keep(module: Any, functions: list[Any]) -> None:
    """Say that functions are used, which nothing calls before loops are vectorised."""
    name = "llvm.compiler.used"
    used = module.globals.get(name)
    if used is not None:
        functions = [*used.initializer.constant, *functions]
    kind = ir.ArrayType(ir.PointerType(), len(functions))
    if used is None:
        used = ir.GlobalVariable(module, kind, name)
        used.linkage, used.section = "appending", "llvm.metadata"
    # A name can be given once in a module, so that a longer list takes the place of the first.
    used.value_type = kind
    used.initializer = ir.Constant(kind, functions)


def offer(call: Any, name: str, kind: Any, count: int = 1) -> None:
    """Declare to LLVM the variants of what is called, which are named ``{name}.v{lanes}``."""
    each = "v" * count
    variants = [f"_ZGV_LLVM_N{n}{each}_{name}({name}.v{n})" for n in lanes(kind)]
    set.add(call.attributes, f'"vector-function-abi-variant"="{",".join(variants)}"')


def inline(library: Any) -> None:
    """Have one of numba's code libraries take the variants into its loops at the end."""

    def inline_into(module: Any, machine: Any) -> None:
        if not any(function.name.startswith(PREFIX) for function in module.functions):
            return
        options = llvmlite.binding.create_pipeline_tuning_options()
        builder = llvmlite.binding.create_pass_builder(machine, options)
        passes = llvmlite.binding.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, builder)

    after_optimising(library, inline_into)
