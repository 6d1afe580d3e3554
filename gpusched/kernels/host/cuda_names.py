"""Which names of a kernel mean something of `numba.cuda`."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.kernels.definition import Definition
from gpusched.kernels.errors import NotCompiledError

Path = tuple[str, ...]
"""A name of `numba.cuda` as its parts: ``("threadIdx", "x")``."""

KNOWN = ("grid", "gridsize", "threadIdx", "blockIdx", "blockDim", "gridDim", "syncthreads",
         "threadfence", "threadfence_block", "shared", "local", "atomic")  # fmt: skip
"""What the CPU has; `warpsize` and dtypes too, which may be read from elsewhere."""


ATOMICS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "max": lambda a, b: b if b > a else a,
    "min": lambda a, b: b if b < a else a, "and_": lambda a, b: a & b, "or_": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "exch": lambda a, b: b,
}  # fmt: skip
"""What atomic operations of one number make of what is there; ``cas`` takes two."""

WARP = 32
"""What ``warpsize`` is."""


class CudaNames:
    """The names of one kernel.

    Parameters
    ----------
    definition
        Of the kernel; no other function that it calls may use `numba.cuda`.

    Raises
    ------
    NotCompiledError
        If one does.
    """

    def __init__(self, definition: Definition) -> None:
        import numba.cuda

        self.outside = definition.outside
        self._module = numba.cuda
        self._stubs = {id(getattr(numba.cuda, name)): name for name in KNOWN}
        for name, value in self.outside.items():
            if isinstance(value, Definition) and self._used_by(value):
                raise NotCompiledError(f"it calls {name}, which uses numba.cuda itself")

    def _used_by(self, inner: Definition) -> bool:
        return any(
            self._used_by(value) if isinstance(value, Definition)
            else value is self._module or id(value) in self._stubs
            for value in inner.outside.values()
        )  # fmt: skip

    def path(self, node: ast.expr) -> Path | None:
        """Return what of `numba.cuda` an expression names; None for anything else."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.outside:
            return None
        value = self.outside[node.id]
        while attributes and isinstance(value, types.ModuleType) and value is not self._module:
            value = getattr(value, attributes.pop(0), None)
        if value is self._module:
            return tuple(attributes)
        name = self._stubs.get(id(value))
        return None if name is None else (name, *attributes)

    def constant(self, node: ast.expr) -> Any:
        """Return the value of an expression of numbers, names from outside and dtypes.

        Raises
        ------
        NotCompiledError
            If it has none before the kernel runs.
        """
        path = self.path(node)
        if path is not None and len(path) == 1 and dtype_named(path[0]) is not None:
            return dtype_named(path[0])
        values = {k: v for k, v in self.outside.items() if not isinstance(v, Definition)}
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "<constant>", "eval")
        try:
            return eval(code, {"__builtins__": {}} | values)
        except (NameError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
            raise NotCompiledError(f"{ast.unparse(node)} is not a constant: {error}") from error


def dtype_named(name: str) -> Any:
    """Return the dtype of numba's of that name; None if it is none."""
    import numba

    found = getattr(numba, name, None)
    return found if isinstance(found, numba.types.Number | numba.types.Boolean) else None


def numpy_dtype(value: Any) -> np.dtype:
    """Return a dtype of numba's or NumPy's as NumPy's.

    Raises
    ------
    NotCompiledError
        If it is none.
    """
    from numba import types as numba_types
    from numba.np.numpy_support import as_dtype

    try:
        return as_dtype(value) if isinstance(value, numba_types.Type) else np.dtype(value)
    except (TypeError, NotImplementedError) as error:
        raise NotCompiledError(f"{value} is not a dtype of arrays") from error
