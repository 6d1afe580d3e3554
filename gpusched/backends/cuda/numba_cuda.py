"""What this package uses of numba-cuda, under one roof.

numba-cuda takes the place of `numba.cuda` when Python imports that, but type checkers find numba's
own, older one; so everything is imported by name here, and has no static type.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np


def _import_array_functions() -> None:
    """Import what numba-cuda would import at its first compilation.

    It registers `numpy.row_stack` there, which NumPy 2.5 no longer has: without that name no
    kernel compiles.
    """
    missing = "row_stack" not in vars(np)
    if missing:
        vars(np)["row_stack"] = np.vstack
    try:
        import_module("numba.cuda.np.arrayobj")
    finally:
        if missing:
            del vars(np)["row_stack"]


_import_array_functions()

cgutils: Any = import_module("numba.cuda.cgutils")
compiler: Any = import_module("numba.cuda.compiler")
compiler_lock: Any = import_module("numba.cuda.core.compiler_lock")
cuda: Any = import_module("numba.cuda")
dispatcher: Any = import_module("numba.cuda.dispatcher")
nvvm: Any = import_module("numba.cuda.cudadrv.nvvm")
nvvmutils: Any = import_module("numba.cuda.nvvmutils")
types: Any = import_module("numba.cuda.types")

intrinsic: Any = import_module("numba.cuda.extending").intrinsic
"""Makes a function whose call becomes given LLVM instructions."""
