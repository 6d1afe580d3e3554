"""power.

``x**y = exp(y log x)``.  float64: the logarithm and the product are sums of two numbers, with a
relative error of 2**-65, by the series of atanh: ``log m = 2 s + s z (2/3 + z P(z))`` with
``s = (m - 1) / (m + 1)`` and ``z = s**2``; P interpolates at the Chebyshev nodes, as does the
exponential's polynomial.  float32 is computed in float64: its logarithm's error is 1e-13.  Edges
are those of C99's Annex F, and NumPy's.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

from numba import float32, float64

from gpusched.vectormath.bits import (
    SIGN,
    device,
    floor,
    fma,
    from_bits_f64,
    nonzero,
    polynomial,
    to_bits_f64,
)
from gpusched.vectormath.exponential import (
    _ROUND_F64,
    _polynomial_f64,
    _scaled_f64,
    exp_for_f32,
)
from gpusched.vectormath.logarithm import _parts_f64, log_for_f32

_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_THIRDS, _THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17

_series_f64 = polynomial(
    0.12914712183935095,
    0.13285868837545742,
    0.15385577463308145,
    0.18181808210921882,
    0.22222222271326808,
    0.2857142857133801,
    0.4000000000000003,
)


@device
def _logarithm_f64(a: Any) -> Any:
    """Return log(a) as a sum of two numbers."""
    k, f = _parts_f64(a)
    d = 2.0 + f
    inverse = 1.0 / d
    s = f * inverse
    s_low = (fma(-s, d, f) - s * (f - (d - 2.0))) * inverse
    z = s * s
    z_low = fma(s, s, -z) + 2.0 * s * s_low
    w = fma(z, _series_f64(z), _THIRDS_LOW)
    u = _THIRDS + w
    u_low = (_THIRDS - u) + w
    v = z * u
    v_low = fma(z, u, -v) + fma(z, u_low, z_low * u)
    c = 2.0 + v
    c_low = ((2.0 - c) + v) + v_low
    log = s * c
    log_low = fma(s, c, -log) + fma(s, c_low, s_low * c)
    whole = k * _LOG2_HIGH
    high = whole + log
    return high, ((whole - high) + log) + fma(k, _LOG2_LOW, log_low)


@device
def _edges(x: Any, y: Any, size: Any) -> Any:
    """Return |x|**y with the sign and the exceptions that follow from x and y."""
    a = abs(x)
    whole = floor(y) == y
    odd = whole and 2.0 * floor(0.5 * y) != y
    result = from_bits_f64(to_bits_f64(size) | (to_bits_f64(x) & SIGN)) if odd else size
    result = nan if x < 0.0 and a < inf and not whole else result
    result = x + y if x != x or y != y else result
    return 1.0 if y == 0.0 or x == 1.0 or (a == 1.0 and abs(y) == inf) else result


@device
def _of_edge(a: Any, y: Any) -> Any:
    """Return y log(a), bounded, for an a of 0 or infinity: inf - inf would raise a flag."""
    return 760.0 if (a == inf) == (y >= 0.0) else -760.0


@device
def power_f64(x: Any, y: Any) -> Any:
    a = abs(x)
    log, log_low = _logarithm_f64(nonzero(a))
    p = y * log
    p_low = fma(y, log, -p) + y * log_low
    p = _of_edge(a, y) if a == 0.0 or a == inf else p
    p = 0.0 if x != x or y != y else p
    p_low = p_low if abs(p) < 760.0 else 0.0
    p = 720.0 if p > 720.0 else p
    p = -760.0 if p < -760.0 else p
    t = fma(p, 1.4426950408889634, _ROUND_F64)
    n = t - _ROUND_F64
    r = fma(-n, _LOG2_HIGH, p) + fma(-n, _LOG2_LOW, p_low)
    return _edges(x, y, _scaled_f64(t, _polynomial_f64(r)))


@device
def power_f32(x: Any, y: Any) -> Any:
    wide, high = float64(x), float64(y)
    a = abs(wide)
    p = high * log_for_f32(a)
    p = _of_edge(a, high) if a == 0.0 or a == inf else p
    # What is made of NaN by its bits may overflow.
    p = 0.0 if wide != wide or high != high else p
    p = p if p < 90.0 else 90.0
    p = p if p > -105.0 else -105.0
    return float32(_edges(wide, high, exp_for_f32(p)))
