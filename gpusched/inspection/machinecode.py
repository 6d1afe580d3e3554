"""Machine code of kernels as text, for this CPU and for GPUs that need not be here."""

from __future__ import annotations

import types
from typing import Any

from gpusched.emit import choices, hostloops
from gpusched.emit.kernel import FAST, Kernel


def capability(cc: Any) -> tuple[int, int]:
    """Return a compute capability as two numbers.

    Examples
    --------
    >>> from gpusched.inspection.machinecode import capability
    >>> capability("sm_90"), capability(100), capability((8, 0))
    ((9, 0), (10, 0), (8, 0))
    """
    if isinstance(cc, tuple):
        major, minor = cc
        return int(major), int(minor)
    digits = str(cc).removeprefix("sm_").replace(".", "")
    if not digits.isdigit() or len(digits) < 2:
        raise ValueError(f"cannot read {cc!r} as a compute capability: write (9, 0) or 'sm_90'")
    return int(digits[:-1]), int(digits[-1])


def cuda_code(kernel: Kernel, cc: tuple[int, int]) -> Any:
    """Return a kernel compiled for GPUs of one compute capability."""
    from gpusched.backends.cuda.runtime import compile_for

    return compile_for(kernel, cc)


def cpu_llvm(kernel: Kernel) -> str:
    """Return the optimised LLVM representation of a kernel for this machine's CPU."""
    import numba

    from gpusched.backends import cpu
    from gpusched.vectormath.bits import device

    text, filename = hostloops.source(kernel), f"<gpusched {kernel.name}>"
    names = cpu.namespace(text, kernel.mathematics == FAST) | {"__name__": __name__}
    exec(compile(text, filename, "exec"), names)
    for name, value in list(names.items()):
        own = isinstance(value, types.FunctionType) and value.__code__.co_filename == filename
        if own and name != "kernel":
            names[name] = device(value)
    signature = cpu.signature(kernel)
    compiled = numba.njit(
        signature, error_model="numpy", nogil=True, fastmath=cpu.allowed_in_loops(kernel),
        no_cfunc_wrapper=True,
        pipeline_class=cpu.pipeline(choices.vector_bits(kernel), choices.interleave(kernel)),
    )(names["kernel"])  # fmt: skip
    return str(compiled.inspect_llvm(compiled.signatures[0]))
