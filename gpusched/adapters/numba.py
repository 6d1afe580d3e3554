"""Private names of numba, and what is changed of it.

**Warnings.** While numba infers types it records warnings by `warnings.catch_warnings`, once per
instruction. That replaces the filters, and what shows warnings, for the whole process: where
another thread enters or leaves such a block meanwhile, either side puts back what the other has
set, for good
(https://github.com/python/cpython/issues/128384). Functions are compiled in threads of tasks, and
NumPy's own warnings must not be lost by it.

**Code libraries** are made with what kernels need only, and so faster; the machine code of kernels
stays as it would be, to the byte. numba offers their modules as text alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

import llvmlite.binding
from numba import _dynfunc
from numba.core import bytecode, errors
from numba.core.caching import NullCache
from numba.core.compiler import Compiler
from numba.core.registry import cpu_target

_Catch = Callable[..., AbstractContextManager[None]]


def leave_filters_alone() -> None:
    """Have numba record warnings in the main thread only, whoever asks it to compile.

    In other threads its warnings are shown as they are raised, with the place in numba.
    """
    fixer: Any = errors.WarningsFixer  # type: ignore[attr-defined]
    if not hasattr(fixer.catch_warnings, _MARK):
        fixer.catch_warnings = _in_main_thread(fixer.catch_warnings)


_MARK = "__gpusched_main_thread__"


def _in_main_thread(catch: _Catch) -> _Catch:
    @wraps(catch)
    @contextmanager
    def catch_warnings(*args: Any, **kwargs: Any) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with catch(*args, **kwargs):
            yield

    setattr(catch_warnings, _MARK, True)
    return catch_warnings


def load_registries() -> None:
    """Have numba import all that it knows of types and functions, as a first compilation would."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


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


def after_optimising(library: Any, then: Callable[[Any, Any], Any]) -> None:
    """Have ``then(module, target machine)`` called once a library's module is optimised.

    A module that it returns takes the place of that one.
    """
    optimize = library._optimize_final_module

    def optimize_and_then() -> None:
        optimize()
        found = then(library._final_module, library._codegen._tm)
        library._final_module = found or library._final_module

    library._optimize_final_module = optimize_and_then


def compiled_apart(dispatcher: Any, signature: Any) -> Any:
    """Return what numba's compiler returns of a function, which the dispatcher does not learn."""
    compiled = dispatcher._compiler.compile(signature.args, signature.return_type)
    compiled.library.finalize()
    return compiled


def final_module(library: Any) -> Any:
    """Return the module of a library that is finalized."""
    return library._final_module


def empty_module(library: Any, name: str) -> Any:
    """Return a module to write functions into, for the same target as a library's."""
    return library._codegen._create_empty_module(name)


def object_of(library: Any, module: Any) -> bytes:
    """Return a module's machine code as an object file, for the same target as a library's."""
    return bytes(library._codegen._tm.emit_object(module))


def rename(value: Any, name: str) -> None:
    """Give a function of a module another name, under which others are to find it."""
    value.name = name
    value._clear_string_cache()


def set_entry(cuda_library: Any, name: str) -> None:
    """Have one of numba-cuda's libraries start at the function of that name."""
    cuda_library._entry_name = name


def dispatcher_of(ufunc: Any) -> Any:
    """Return the compiled function that one of numba's ufuncs calls for each element."""
    return ufunc._dispatcher


def offset_of(constant: int) -> int:
    """Return where in a function's bytecode the constant is that numba has named by a number."""
    return constant - int(bytecode._FIXED_OFFSET)


def compiles_for_any(dispatcher: Any) -> bool:
    """Return whether a function is compiled here, for whatever it is called with.

    A function with signatures takes nothing else, and code of a file may hold other values.
    """
    return bool(dispatcher._can_compile) and isinstance(dispatcher._cache, NullCache)
