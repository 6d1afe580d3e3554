"""What `math` and `numpy` mean inside a kernel, for each way to compile it.

On the CPU the functions of `gpusched.vectormath` take the place of the C library's, which
LLVM cannot vectorise. On a GPU NumPy's names stand for those of `math`, the only ones there.
"""

from __future__ import annotations

import builtins
import cmath
import math
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

_NUMPY_TO_MATH = {
    "abs": builtins.abs, "absolute": builtins.abs, "fabs": math.fabs, "sqrt": math.sqrt,
    "exp": math.exp, "expm1": math.expm1, "log": math.log, "log2": math.log2,
    "log10": math.log10, "log1p": math.log1p, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "arcsin": math.asin, "arccos": math.acos, "arctan": math.atan, "arctan2": math.atan2,
    "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "arcsinh": math.asinh,
    "arccosh": math.acosh, "arctanh": math.atanh, "hypot": math.hypot, "floor": math.floor,
    "ceil": math.ceil, "trunc": math.trunc, "isnan": math.isnan, "isinf": math.isinf,
    "isfinite": math.isfinite, "copysign": math.copysign, "fmod": math.fmod, "power": math.pow,
    "minimum": builtins.min, "maximum": builtins.max, "deg2rad": math.radians,
    "rad2deg": math.degrees, "radians": math.radians, "degrees": math.degrees,
}  # fmt: skip
_VECTORISED = {
    "acos": "arccos", "acosh": "arccosh", "arccos": "arccos", "arccosh": "arccosh",
    "arcsin": "arcsin", "arcsinh": "arcsinh", "arctan": "arctan", "arctanh": "arctanh",
    "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh", "cbrt": "cbrt",
    "cos": "cos", "cosh": "cosh", "erf": "erf", "erfc": "erfc", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin",
    "sinh": "sinh", "tan": "tan", "tanh": "tanh", "log": "log",
}  # fmt: skip
_VECTORISED_OF_TWO = {"atan2": "arctan2", "arctan2": "arctan2", "hypot": "hypot"}


@lru_cache(maxsize=1)
def for_cpu() -> dict[int, Any]:
    """Return what to read instead of a module or function, by its identity."""
    replaced: dict[int, Any] = {}
    for module in (math, np):
        stand_in = types.ModuleType(module.__name__)
        stand_in.__dict__.update(module.__dict__)
        for arity, table in ((1, _VECTORISED), (2, _VECTORISED_OF_TWO)):
            for name, function in table.items():
                original = getattr(module, name, None)
                if original is not None:
                    setattr(stand_in, name, _vectorised(function, arity))
                    replaced[id(original)] = getattr(stand_in, name)
        replaced[id(module)] = stand_in
    return replaced


@lru_cache(maxsize=1)
def for_cuda() -> dict[int, Any]:
    """Return the same for numba-cuda."""
    stand_in = types.ModuleType("numpy")
    stand_in.__dict__.update(np.__dict__)
    replaced: dict[int, Any] = {id(np): stand_in}
    for name, function in _NUMPY_TO_MATH.items():
        setattr(stand_in, name, function)
        replaced[id(getattr(np, name))] = function
    return replaced


@lru_cache(maxsize=64)
def _vectorised(name: str, arity: int) -> Callable[..., Any]:
    """Return a function that numba compiles to the vectorised one of its arguments' dtype."""
    from numba import types as numba_types
    from numba.extending import overload

    from gpusched.backends import scalar_math
    from gpusched.backends.cpu import _math

    narrow, wide = _math(f"{name}_f32"), _math(f"{name}_f64")

    def of_one(x: Any) -> Any:
        return getattr(np, name)(x)

    def of_two(x: Any, y: Any) -> Any:
        return getattr(np, name)(x, y)

    def choose_one(x: Any) -> Any:
        if isinstance(x, numba_types.Complex):
            original = getattr(cmath, scalar_math.in_math(name), None)
            return original and (lambda x: original(x))
        if x == numba_types.float32:
            return lambda x: narrow(x)
        return lambda x: wide(float(x))

    def choose_two(x: Any, y: Any) -> Any:
        if x == y == numba_types.float32:
            return lambda x, y: narrow(x, y)
        return lambda x, y: wide(float(x), float(y))

    function = of_one if arity == 1 else of_two
    overload(function, strict=False)(choose_one if arity == 1 else choose_two)
    return function


def replacement(table: dict[int, Any], value: Any) -> Any:
    """Return what a kernel reads instead of `value`."""
    return table.get(id(value), value)
