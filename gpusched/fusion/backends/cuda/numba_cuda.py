"""What this package uses of numba-cuda, under one roof.

numba-cuda takes the place of `numba.cuda` when Python imports that, but type checkers find numba's
own, older one; so everything is imported by name here, and has no static type.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

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
