"""erfc.

``exp(-x**2) C / (1 + 2 x)``, the square of x in two parts and C a polynomial in
``(x - 4) / (x + 4)`` (Shepherd and Laframboise, Math. Comp. 36, 1981) through the Chebyshev nodes,
with errors of 6.7e-19 (float64) and 1.2e-9 (float32, the product alone in float64).  In float64 it
is ``1 - erf(x)`` below 1/2.
"""

from __future__ import annotations

from typing import Any

from numba import float32, float64

from gpusched.vectormath.bits import (
    device,
    fma,
    from_bits_f64,
    polynomial,
    to_bits_f64,
)
from gpusched.vectormath.error_function import _small_f64
from gpusched.vectormath.exponential import (
    _ROUND_BITS_F64,
    _ROUND_F64,
    _polynomial_f64,
    exp_for_f32,
)

_complement_f64 = polynomial(
    1.9305427247324347e-09,
    -9.648696986357049e-09,
    -1.8277336291654765e-08,
    1.0324508125074465e-07,
    7.522975006971665e-08,
    -8.194923420738818e-07,
    2.9326529242415577e-07,
    5.706482231662139e-06,
    -1.1221731993683903e-05,
    -2.4398051475837806e-05,
    0.00015062157499029125,
    -0.00019925696725899776,
    -0.0007577732671973772,
    0.005031970018878002,
    -0.016197734060613585,
    0.0371675155337606,
    -0.06633036581199912,
    0.09373283499853637,
    -0.10103906603631319,
    0.06809705425468839,
    0.015379652102619885,
    -0.1396211168405625,
)
_AT_FOUR, _AT_FOUR_LOW = 1.2329951186255526, -4.591124500585713e-17
_complement_f32 = polynomial(
    -0.0006305084437888975,
    -0.0010937237280883216,
    0.005100003735543496,
    -0.016000643593491248,
    0.03721090777550124,
    -0.06636620082677712,
    0.09372029890889548,
    -0.10103650179969763,
    0.06809807059845426,
    0.015379585150804315,
    -0.13962113774677373,
    1.2329951189789292,
)


@device
def erfc_f64(x: Any) -> Any:
    a = abs(x)
    a = a if a < 27.5 else 27.5
    square = a * a
    t = fma(square, -1.4426950408889634, _ROUND_F64)
    n = t - _ROUND_F64
    # exp(-a * a), of which the square is a sum of two numbers.
    r = fma(-n, 6.93147180369123816490e-01, -square)
    q = _polynomial_f64(r - fma(n, 1.90821492927058770002e-10, fma(a, a, -square)))
    d = fma(2.0, a, 1.0)
    inverse = 1.0 / d
    u = (a - 4.0) / (a + 4.0)
    p = _complement_f64(u)
    c_all = fma(u, p, _AT_FOUR)
    c = c_all * inverse
    # The remainder of the division, what d lacks, and what the polynomial lacks.
    rest = fma(-c, d, c_all) - c * (1.0 - (d - 2.0 * a))
    c_low = (rest + (fma(u, p, _AT_FOUR - c_all) + _AT_FOUR_LOW)) * inverse
    shift = to_bits_f64(t) - _ROUND_BITS_F64
    half = shift >> 1
    large = (fma(q, c, fma(q, c_low, c_low)) + c) * from_bits_f64((half + 1023) << 52)
    large = large * from_bits_f64((shift - half + 1023) << 52)
    large = 2.0 - large if x < 0.0 else large
    result = fma(-x, _small_f64(x * x), 1.0) if a < 0.5 else large
    return result if x == x else x


@device
def erfc_f32(x: Any) -> Any:
    a = abs(float64(x))
    a = a if a < 11.0 else 11.0
    p = _complement_f32((a - 4.0) / (a + 4.0))
    result = exp_for_f32(-a * a) * p / (1.0 + 2.0 * a)
    result = 2.0 - result if x < float32(0.0) else result
    return float32(result) if x == x else x
