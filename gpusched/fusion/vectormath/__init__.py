"""Mathematical functions that LLVM vectorises: branch-free, for the CPU backend.

numba's wheels carry no vector library, so that `math.exp` in a loop is a call per element.  These
are polynomials on the machine's own vectors instead.  `FUNCTIONS` says which there are and how far
they are from the true value at most; the CPU backend takes the C library's for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusched.fusion.vectormath import angle, error_function, exponential, logarithm, trigonometric
from gpusched.fusion.vectormath.bits import HAS_FMA


@dataclass(frozen=True)
class VectorFunction:
    """One function for one dtype."""

    function: Any
    """Compiled on first use; takes and returns one number."""
    max_ulp: float
    """Largest distance from the true value, in units in the last place."""


_MODULES = (exponential, logarithm, error_function, angle, trigonometric)
_BOUNDS = {
    "exp_f32": 1.0, "exp_f64": 1.0, "exp2_f64": 1.1, "expm1_f64": 2.0, "tanh_f32": 2.5,
    "tanh_f64": 2.5, "expit_f32": 2.5, "expit_f64": 2.5, "log_f32": 1.0, "log_f64": 1.0,
    "log2_f64": 2.0, "erf_f32": 1.0, "erf_f64": 2.0, "exp2_f32": 1.0, "expm1_f32": 1.0,
    "log2_f32": 1.0, "log10_f32": 1.0, "log1p_f32": 1.0, "arctan_f32": 1.0, "arctan_f64": 1.5,
    "sin_f32": 1.5, "sin_f64": 1.5, "cos_f32": 1.5, "cos_f64": 1.5, "tan_f32": 1.0, "tan_f64": 1.0,
    "arctan2_f32": 1.0, "arctan2_f64": 2.0, "hypot_f32": 1.0, "hypot_f64": 1.1,
}  # fmt: skip

_EXACT_PRODUCTS = (trigonometric,)
"""What is as exact as stated only where products are added without rounding in between."""

FUNCTIONS = {
    name: VectorFunction(getattr(module, name), bound)
    for name, bound in _BOUNDS.items()
    for module in _MODULES
    if hasattr(module, name) and (HAS_FMA or module not in _EXACT_PRODUCTS)
}
"""Every function by the name kernels use, such as ``exp_f32``."""

__all__ = ["FUNCTIONS", "VectorFunction"]
