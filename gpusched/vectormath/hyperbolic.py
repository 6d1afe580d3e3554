"""sinh and cosh, and their inverses.

With ``e = exp(|x|)``: ``sinh = (e - 1/e) / 2``, below 1 an odd polynomial through the Chebyshev
nodes (errors 3.2e-19 and 1.8e-10), and ``cosh = (e + 1/e) / 2``.  The inverses are logarithms of
sums, whose rounding errors are carried along (Kahan, "Branch cuts for complex elementary
functions", 1987): ``asinh a = log1p(a + a**2 / (1 + sqrt(1 + a**2)))``,
``acosh x = log1p(t + sqrt(t (2 + t)))`` with ``t = x - 1``, and
``atanh a = log1p(2 a / (1 - a)) / 2``.  The inverses of float32 are
plain logarithms in float64.
"""

from __future__ import annotations

from math import inf, nan, sqrt
from typing import Any

from numba import float32, float64, int32

from gpusched.vectormath.bits import (
    device,
    fma,
    from_bits_f32,
    from_bits_f64,
    polynomial,
    to_bits_f32,
    to_bits_f64,
    with_sign_of,
)
from gpusched.vectormath.exponential import (
    _ROUND_BITS_F32,
    _ROUND_BITS_F64,
    _reduced_f32,
    _reduced_f64,
)
from gpusched.vectormath.logarithm import log_for_f32, log_of_sum

_small_f64 = polynomial(
    7.746178593018827e-13,
    1.6057679623801638e-10,
    2.5052117695907823e-08,
    2.7557319191381816e-06,
    0.00019841269841324198,
    0.008333333333333299,
    0.16666666666666666,
)
_small_f32 = polynomial(
    2.8062802582276946e-06, 0.00019838101968683888, 0.00833333967591706, 0.16666666646842135
)


@device
def _quarter_exp_f64(a: Any) -> Any:
    """Return exp(a) / 4 for a >= 0, not infinite while the hyperbolic functions are finite."""
    t, q = _reduced_f64(710.6 if a > 710.6 else a)
    scale = from_bits_f64((to_bits_f64(t) - _ROUND_BITS_F64 + 1021) << 52)
    return fma(q, scale, scale)


@device
def sinh_f64(x: Any) -> Any:
    a = abs(x)
    quarter = _quarter_exp_f64(a)
    z = a * a
    size = fma(a * z, _small_f64(z), a) if a < 1.0 else 2.0 * quarter - 0.125 / quarter
    return with_sign_of(size, x) if x == x else x


@device
def cosh_f64(x: Any) -> Any:
    quarter = _quarter_exp_f64(abs(x))
    return 2.0 * quarter + 0.125 / quarter if x == x else x


@device
def _quarter_exp_f32(a: Any) -> Any:
    t, q = _reduced_f32(float32(89.6) if a > float32(89.6) else a)
    n = int32(to_bits_f32(t) - int32(_ROUND_BITS_F32))
    scale = from_bits_f32(int32(int32(n + int32(125)) << int32(23)))
    return fma(q, scale, scale)


@device
def sinh_f32(x: Any) -> Any:
    a = abs(x)
    quarter = _quarter_exp_f32(a)
    z = a * a
    large = quarter + quarter - float32(0.125) / quarter
    size = fma(a * z, _small_f32(z), a) if a < float32(1.0) else large
    bits = int32(to_bits_f32(size) | int32(to_bits_f32(x) & int32(-2147483648)))
    return from_bits_f32(bits) if x == x else x


@device
def cosh_f32(x: Any) -> Any:
    quarter = _quarter_exp_f32(abs(x))
    return quarter + quarter + float32(0.125) / quarter if x == x else x


@device
def arcsinh_f64(x: Any) -> Any:
    a = abs(x)
    z = a * a
    rest = z / (1.0 + sqrt(1.0 + z))
    w = a + rest
    huge = a > 1e9
    size = log_of_sum(a if huge else w, (a - w) + rest, huge)
    size = size if a < inf else a
    return with_sign_of(size, x) if x == x else x


@device
def arccosh_f64(x: Any) -> Any:
    t = x - 1.0
    square = fma(t, t, t + t)
    root = sqrt(square)
    w = t + root
    # Either of the two may be the larger.
    other = w - t
    low = (t - (w - other)) + (root - other)
    huge = x > 1e9
    result = log_of_sum(x if huge else w, low, huge)
    result = result if x < inf else x
    return result if x > 1.0 else (0.0 if x == 1.0 else nan)


@device
def arctanh_f64(x: Any) -> Any:
    a = abs(x)
    d = 1.0 - a
    inverse = 1.0 / d
    w = 2.0 * a * inverse
    low = (fma(-w, d, 2.0 * a) - w * ((1.0 - d) - a)) * inverse
    size = 0.5 * log_of_sum(w, low, False)
    size = size if a < 1.0 else (inf if a == 1.0 else nan)
    return with_sign_of(size, x)


@device
def arcsinh_f32(x: Any) -> Any:
    a = abs(float64(x))
    size = log_for_f32(a + sqrt(fma(a, a, 1.0)))
    size = size if 1e-4 < a < inf else a
    return float32(with_sign_of(size, float64(x))) if x == x else x


@device
def arccosh_f32(x: Any) -> Any:
    a = float64(x)
    t = a - 1.0
    result = log_for_f32(a + sqrt(t * (2.0 + t)))
    result = result if t < inf else t
    return float32(result if t > 0.0 else (0.0 if t == 0.0 else nan))


@device
def arctanh_f32(x: Any) -> Any:
    a = abs(float64(x))
    size = 0.5 * log_for_f32((1.0 + a) / (1.0 - a))
    size = size if a > 1e-4 else a
    size = size if a < 1.0 else (inf if a == 1.0 else nan)
    return float32(with_sign_of(size, float64(x)))
