"""Numba's code libraries with what kernels need only: compiled faster.

The machine code of kernels stays as it would be, to the byte.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from numba import _dynfunc
from numba.core.compiler import Compiler

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

    apart = False
    """Whether they become part of kernels whose machine code only is wanted."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, result: Any,
                 flags: Any, locals: Any) -> None:  # fmt: skip
        library = target.codegen().create_library("gpusched.inlined")
        skip_declared(library)
        if self.apart:
            keep_apart(library, flags)
        else:
            _leave_to_callers(library)
        super().__init__(typing, target, library, args, result, flags, locals)

    def _compile_core(self) -> Any:
        compiled = super()._compile_core()
        if not self.apart:
            return compiled
        # Callers name the function by this; it has no address, since nothing runs it.
        entry = _dynfunc.make_function(_dynfunc, "inlined", "", 0, compiled.environment, ())
        self.state.targetctx.insert_user_function(entry, compiled.fndesc, [compiled.library])
        return compiled._replace(entry_point=entry)


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


def keep_apart(library: Any, flags: Any) -> None:
    """Have a function compiled that this process never runs: its module is what is wanted."""
    flags.no_compile = flags.no_cpython_wrapper = True

    def finalize() -> None:
        library._finalize_dynamic_globals()
        library._verify_declare_only_symbols()
        library._finalized = True

    library._finalize_final_module = finalize
