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

from gpusched.backends.scalar_math import in_math
from gpusched.emit.operations import UNARY_MATH

_OF_ONE = set(UNARY_MATH) - {"expit", "gamma"}
_OF_TWO = {"arctan2", "hypot"}
"""Functions that vectorised ones take the place of."""
_ON_GPUS = (_OF_ONE | _OF_TWO) - {"cbrt", "erf", "erfc", "exp2"} | {
    "fabs", "sqrt", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "copysign", "fmod",
    "power",
}  # fmt: skip
"""NumPy's functions that `math` has, as NumPy or C calls them."""
_CALLED_OTHERWISE = {
    "abs": builtins.abs, "absolute": builtins.abs, "minimum": builtins.min,
    "maximum": builtins.max, "deg2rad": math.radians, "rad2deg": math.degrees,
    "radians": math.radians, "degrees": math.degrees,
}  # fmt: skip


@lru_cache(maxsize=1)
def for_cpu() -> dict[int, Any]:
    """Return what to read instead of a module or function, by its identity."""
    replaced: dict[int, Any] = {}
    for module in (math, np):
        stand_in = types.ModuleType(module.__name__)
        stand_in.__dict__.update(module.__dict__)
        for function in _OF_ONE | _OF_TWO:
            for name in (function, in_math(function)):
                original = getattr(module, name, None)
                if original is not None:
                    setattr(stand_in, name, _vectorised(function))
                    replaced[id(original)] = getattr(stand_in, name)
        replaced[id(module)] = stand_in
    return replaced


@lru_cache(maxsize=1)
def for_cuda() -> dict[int, Any]:
    """Return the same for numba-cuda."""
    stand_in = types.ModuleType("numpy")
    stand_in.__dict__.update(np.__dict__)
    replaced: dict[int, Any] = {id(np): stand_in}
    known = {name: getattr(math, in_math(name)) for name in _ON_GPUS} | _CALLED_OTHERWISE
    for name, function in known.items():
        setattr(stand_in, name, function)
        replaced[id(getattr(np, name))] = function
    return replaced


@lru_cache(maxsize=64)
def _vectorised(name: str) -> Callable[..., Any]:
    """Return a function that numba compiles to the vectorised one of its arguments' dtype."""
    from numba import types as numba_types
    from numba.extending import overload

    from gpusched.backends.cpu import _math

    narrow, wide = _math(f"{name}_f32"), _math(f"{name}_f64")

    def of_one(x: Any) -> Any:
        return getattr(np, name)(x)

    def of_two(x: Any, y: Any) -> Any:
        return getattr(np, name)(x, y)

    def choose_one(x: Any) -> Any:
        if isinstance(x, numba_types.Complex):
            original = getattr(cmath, in_math(name), None)
            return original and (lambda x: original(x))
        if x == numba_types.float32:
            return lambda x: narrow(x)
        return lambda x: wide(float(x))

    def choose_two(x: Any, y: Any) -> Any:
        if x == y == numba_types.float32:
            return lambda x, y: narrow(x, y)
        return lambda x, y: wide(float(x), float(y))

    function, choose = (of_two, choose_two) if name in _OF_TWO else (of_one, choose_one)
    overload(function, strict=False)(choose)
    return function


def replacement(table: dict[int, Any], value: Any) -> Any:
    """Return what a kernel reads instead of `value`."""
    return table.get(id(value), value)
