"""1/x of normal numbers whose reciprocals are normal, to about one unit in the last place.

A division takes as long as a dozen multiplications: an estimate and Newton's steps take half of
that.
"""

from __future__ import annotations

from typing import Any

from numba import float32

from gpusched.vectormath.avx512 import HAS_AVX512, reciprocal_estimate
from gpusched.vectormath.bits import device, fma


@device
def _refined_f32(x: Any) -> Any:
    y = reciprocal_estimate(x)
    return fma(y, fma(-x, y, float32(1.0)), y)


@device
def _refined_f64(x: Any) -> Any:
    y = reciprocal_estimate(x)
    y = fma(y, fma(-x, y, 1.0), y)
    return fma(y, fma(-x, y, 1.0), y)


@device
def _divided_f32(x: Any) -> Any:
    return float32(1.0) / x


@device
def _divided_f64(x: Any) -> Any:
    return 1.0 / x


reciprocal_f32 = _refined_f32 if HAS_AVX512 else _divided_f32
reciprocal_f64 = _refined_f64 if HAS_AVX512 else _divided_f64
