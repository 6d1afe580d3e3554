"""Mathematical functions that LLVM vectorises: branch-free, for the CPU backend.

numba's wheels carry no vector library, so that `math.exp` in a loop is a call per element.  These
are polynomials on the machine's own vectors instead.  `FUNCTIONS` says which there are and how far
they are from the true value at most; the CPU backend takes the C library's for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from numba import types
from numba.extending import overload

from gpusched.vectormath import (
    angle,
    division,
    error_complement,
    error_function,
    exponential,
    fast,
    hyperbolic,
    inverse,
    logarithm,
    power,
    trigonometric,
)
from gpusched.vectormath.bits import HAS_FMA


@dataclass(frozen=True)
class VectorFunction:
    """One function for one dtype."""

    function: Any
    """Compiled on first use; takes and returns one number."""
    max_ulp: float
    """Largest distance from the true value, in units in the last place."""


_OLDER = (angle, error_function, exponential, logarithm)
_EXACT_PRODUCTS = (division, error_complement, hyperbolic, inverse, power, trigonometric)
"""What is as exact as stated only where products are added without rounding in between."""

_BOUNDS = {
    "arccos_f32": 1.0, "arccos_f64": 1.0, "arccosh_f32": 1.0, "arccosh_f64": 2.0,
    "arcsin_f32": 1.0, "arcsin_f64": 1.0, "arcsinh_f32": 1.0, "arcsinh_f64": 1.5,
    "arctan_f32": 2.0, "arctan_f64": 1.6, "arctan2_f32": 2.0, "arctan2_f64": 2.0,
    "arctanh_f32": 1.0, "arctanh_f64": 1.5, "cbrt_f32": 1.0, "cbrt_f64": 1.0, "cos_f32": 1.6,
    "cos_f64": 1.6, "cosh_f32": 1.6, "cosh_f64": 1.6, "erf_f32": 1.5, "erf_f64": 2.0,
    "erfc_f32": 1.0, "erfc_f64": 2.0, "exp_f32": 1.0, "exp_f64": 1.0, "exp2_f32": 1.5,
    "exp2_f64": 1.1, "expit_f32": 2.0, "expit_f64": 2.0, "expm1_f32": 1.6, "expm1_f64": 2.0,
    "fmod_f32": 0, "fmod_f64": 0,
    "hypot_f32": 1.0, "hypot_f64": 1.1, "log_f32": 1.0, "log_f64": 1.0, "log10_f32": 1.0,
    "log10_f64": 1.5, "log1p_f32": 1.0, "log1p_f64": 1.5, "log2_f32": 1.5, "log2_f64": 1.5,
    "power_f32": 1.0, "power_f64": 1.5, "sin_f32": 1.6, "sin_f64": 1.6, "sinh_f32": 2.0,
    "sinh_f64": 2.0, "tan_f32": 1.5, "tan_f64": 1.5, "tanh_f32": 2.0, "tanh_f64": 2.0,
}  # fmt: skip

FUNCTIONS = {
    name: VectorFunction(getattr(module, name), bound)
    for name, bound in _BOUNDS.items()
    for module in (*_OLDER, *(_EXACT_PRODUCTS if HAS_FMA else ()))
    if name in vars(module)
}
"""Every function by the name kernels use, such as ``exp_f32``."""

_FAST_BOUNDS = {
    "cos_f32": 3.5, "cos_f64": 3.0, "expit_f32": 3.0, "expit_f64": 3.0, "sin_f32": 3.0,
    "sin_f64": 3.0, "tanh_f32": 5.0,
}  # fmt: skip

FEWER_STEPS = {
    name: VectorFunction(getattr(fast, name), bound)
    for name, bound in (_FAST_BOUNDS if HAS_FMA else {}).items()
}
"""Functions that are less exact where somebody wants them fast; each is, by a quarter or more."""


@lru_cache(maxsize=64)
def by_dtype(name: str, arguments: int = 1) -> Callable[..., Any]:
    """Return a function that numba compiles to the vectorised one of its first argument's dtype.

    Parameters
    ----------
    name
        NumPy's name of a scalar function, such as ``"exp"``.
    arguments
        How many it takes: one or two.
    """
    narrow, wide = (FUNCTIONS[f"{name}_{width}"].function for width in ("f32", "f64"))

    def function(*numbers: Any) -> Any:
        return wide(*numbers)

    def of_one(x: Any) -> Any:
        return (lambda x: narrow(x)) if x == types.float32 else (lambda x: wide(x))

    def of_two(x: Any, y: Any) -> Any:
        return (lambda x, y: narrow(x, y)) if x == types.float32 else (lambda x, y: wide(x, y))

    function.__name__ = name  # for numba's messages
    overload(function, strict=False, inline="always")({1: of_one, 2: of_two}[arguments])
    return function


__all__ = ["FEWER_STEPS", "FUNCTIONS", "VectorFunction", "by_dtype"]
