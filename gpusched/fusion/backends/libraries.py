"""Numba's code libraries with what kernels need only: compiled faster, loaded faster.

The machine code of kernels stays as it would be, to the byte.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from numba.core.compiler import Compiler

_EXTERNAL = llvmlite.binding.Linkage.external

_ENVIRONMENT = "_ZN08NumbaEnv"
"""How numba's names of the variables begin that hold a function's Python objects."""


def skip_declared(library: Any) -> None:
    """Have a library set up passes for functions that it defines only.

    A kernel declares some thirty, of Python's and of LLVM's, and each pipeline costs as much as
    a small function takes to go through it.
    """

    def optimize(module: Any) -> None:
        module.data_layout = library._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration:
                passes, builder = library._codegen._function_pass_manager()
                passes.run(function, builder)

    library._optimize_functions = optimize


class Inlined(Compiler):
    """Numba's pipeline for functions that become part of others: no machine code of their own."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, result: Any,
                 flags: Any, locals: Any) -> None:  # fmt: skip
        library = target.codegen().create_library("gpusched.inlined")
        skip_declared(library)
        _leave_to_callers(library)
        super().__init__(typing, target, library, args, result, flags, locals)


def _leave_to_callers(library: Any) -> None:
    finalize = library._finalize_final_module

    def finalize_environments() -> None:
        # Numba writes an address to each as soon as a function is compiled.
        whole = library._final_module
        variables = [str(v) for v in whole.global_variables if v.name.startswith(_ENVIRONMENT)]
        library._final_module = llvmlite.binding.parse_assembly("\n".join(variables))
        finalize()
        library._final_module = whole

    library._finalize_final_module = finalize_environments


def forget_instructions(library: Any) -> None:
    """Let a compiled library be kept as its machine code and the names that this defines.

    Numba keeps LLVM's instructions, too, for other functions to inline; nothing inlines kernels.
    """
    library._shared_module = llvmlite.binding.parse_assembly(_definitions(defined(library)))


def defined(library: Any) -> list[str]:
    """Return the names of the functions that a compiled library lets others call."""
    return [f.name for f in library.get_defined_functions() if f.linkage == _EXTERNAL]


def declared(names: list[str]) -> bytes:
    """Return a module, as LLVM's bitcode, that has these names and no instructions."""
    module: bytes = llvmlite.binding.parse_assembly(_definitions(names)).as_bitcode()
    return module


def _definitions(names: list[str]) -> str:
    return "\n".join(f'define void @"{name}"() {{ ret void }}' for name in names)
