"""Mathematical functions by the names kernels use (`exp_f32`), where no vectorised one exists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.emit.dtypes import HALF, SUPPORTED
from gpusched.emit.operations import BINARY_MATH, UNARY_MATH

DTYPES = sorted(dtype.name for dtype in SUPPORTED if dtype not in (HALF, np.dtype(bool)))
"""Names that convert a number to that dtype."""

ARITHMETIC = ["floor", "ceil", "trunc", "rint", "sqrt", "fabs", "copysign", "minimum", "maximum",
              "fmin", "fmax", "fmod"]  # fmt: skip
"""NumPy's functions that processors have instructions for, by its names for them."""

INTEGERS = ["to_int32", "to_int64"]
"""Names that convert a float to that dtype as NumPy does here, beyond its range as well."""

HALVES = ["from_float16", "to_float16", "round_to_float16"]
"""Names that convert an element of float16 to float32, a number to such an element, and a number to
the float32 that is equal to the nearest float16."""

BITWISE = ["bits", "is_worse", "unseen"]
"""What asks for the width of an integer, and for the bits of floats."""


def split(name: str) -> tuple[str, type[Any]]:
    """Return the function and the dtype of a name such as ``exp_f32``."""
    function, _, width = name.rpartition("_")
    return function, np.float32 if width == "f32" else np.float64


def math_names() -> list[str]:
    """Return every such name."""
    return [f"{name}_{width}" for name in UNARY_MATH + BINARY_MATH for width in ("f32", "f64")]


def numpy_function(name: str) -> Callable[..., Any]:
    """Return NumPy's (or `scipy.special`'s) function, which is the reference."""
    function, dtype = split(name)

    def call(*values: Any) -> Any:
        found = getattr(np, function, None)
        if found is None:
            import scipy.special

            found = getattr(scipy.special, function)
        # Two elements each: for one exponent of 0.5 NumPy's power takes the square root instead.
        return dtype(found(*(np.full(2, v, dtype) for v in values))[0])

    return call


_LIBM = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
         "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "power": "pow"}  # fmt: skip


def in_math(function: str) -> str:
    """Return what Python's `math` and `cmath` call NumPy's function."""
    return _LIBM.get(function, function)


def libm_function(name: str) -> Callable[..., Any]:
    """Return the C library's function as Python's `math` names it, or one made from it."""
    function, _ = split(name)
    if function in _FORMULAS:
        return _FORMULAS[function]
    return getattr(math, in_math(function))


def _expit(x: Any) -> Any:
    small = math.exp(-abs(x))
    return 1 / (1 + small) if x >= 0 else small / (1 + small)


def _exp2(x: Any) -> Any:
    return 2.0**x


_FORMULAS: dict[str, Callable[..., Any]] = {"expit": _expit, "exp2": _exp2, "cbrt": np.cbrt}
