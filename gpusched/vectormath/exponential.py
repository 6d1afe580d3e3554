"""exp, exp2, expm1 and what is made of them: tanh and expit.

``exp(x) = 2**n * exp(r)`` with ``r = x - n log 2`` in two parts (Cody and Waite, 1980).  The
polynomials interpolate ``(exp(r) - 1 - r) / r**2`` at the Chebyshev nodes of [-log(2)/2, log(2)/2]:
relative errors 1.7e-19 (float64) and 1.7e-10 (float32).  That of exp2 in float32 interpolates
``(2**f - 1) / f``: 5e-9.
"""

from __future__ import annotations

from typing import Any

from numba import float32, int32

from gpusched.vectormath.avx512 import HAS_AVX512, reciprocal_f32, reciprocal_f64, scale
from gpusched.vectormath.bits import (
    device,
    fma,
    from_bits_f32,
    from_bits_f64,
    polynomial,
    to_bits_f32,
    to_bits_f64,
)

# Adding 1.5 * 2**52 (2**23) rounds to an integer, which is then in the lowest bits.
_ROUND_F64, _ROUND_BITS_F64 = 6755399441055744.0, 4843621399236968448
_ROUND_F32, _ROUND_BITS_F32 = 12582912.0, 1262485504


@device
def _reduced_f64(x: Any) -> Any:
    """Return n (as rounded by the addition) and exp(r) - 1."""
    t = fma(x, 1.4426950408889634, _ROUND_F64)
    n = t - _ROUND_F64
    r = fma(n, -1.90821492927058770002e-10, fma(n, -6.93147180369123816490e-01, x))
    return t, _polynomial_f64(r)


@device
def _polynomial_f64(r: Any) -> Any:
    p = fma(2.0914686968086876e-09, r, 2.5105217004720745e-08)
    p = fma(p, r, 2.75572736431103e-07)
    p = fma(p, r, 2.7557255400206422e-06)
    p = fma(p, r, 2.4801587325547743e-05)
    p = fma(p, r, 0.00019841269874820627)
    p = fma(p, r, 0.0013888888888883748)
    p = fma(p, r, 0.008333333333326136)
    p = fma(p, r, 0.04166666666666667)
    p = fma(p, r, 0.1666666666666667)
    p = fma(p, r, 0.5)
    return fma(p * r, r, r)


@device
def _in_two_factors_f64(t: Any, q: Any) -> Any:
    n = to_bits_f64(t) - _ROUND_BITS_F64
    half = n >> 1
    first = from_bits_f64((half + 1023) << 52)
    return fma(q, first, first) * from_bits_f64((n - half + 1023) << 52)


@device
def _in_two_factors_f32(t: Any, q: Any) -> Any:
    n = int32(to_bits_f32(t) - int32(_ROUND_BITS_F32))
    half = int32(n >> int32(1))
    first = from_bits_f32(int32(int32(half + int32(127)) << int32(23)))
    second = from_bits_f32(int32(int32(n - half + int32(127)) << int32(23)))
    return fma(q, first, first) * second


@device
def _at_once_f64(t: Any, q: Any) -> Any:
    return scale(1.0 + q, t - _ROUND_F64)


@device
def _at_once_f32(t: Any, q: Any) -> Any:
    return scale(float32(1.0) + q, t - float32(_ROUND_F32))


# Return 2**n * (1 + q), subnormal results too.
_scaled_f64 = _at_once_f64 if HAS_AVX512 else _in_two_factors_f64
_scaled_f32 = _at_once_f32 if HAS_AVX512 else _in_two_factors_f32


_short = polynomial(
    0.00019891080463998843,
    0.0013933730715792083,
    0.008333310844647862,
    0.04166646419740569,
    0.16666666681704215,
    0.500000001353873,
)


@device
def exp_for_f32(x: Any) -> Any:
    """Return exp(x) of a float64 in [-700, 700], as exact as a float32 is: to 6e-11."""
    t = fma(x, 1.4426950408889634, _ROUND_F64)
    r = fma(t - _ROUND_F64, -0.6931471805599453, x)
    scale = from_bits_f64((to_bits_f64(t) - _ROUND_BITS_F64 + 1023) << 52)
    return fma(fma(_short(r) * r, r, r), scale, scale)


@device
def exp_f64(x: Any) -> Any:
    # NaN is neither above nor below.
    y = 720.0 if x > 720.0 else x
    y = -760.0 if y < -760.0 else y
    t, q = _reduced_f64(y)
    return _scaled_f64(t, q)


@device
def exp2_f64(x: Any) -> Any:
    y = 1030.0 if x > 1030.0 else x
    y = -1090.0 if y < -1090.0 else y
    t = y + _ROUND_F64
    f = y - (t - _ROUND_F64)
    r = f * 0.6931471805599453
    low = fma(f, 0.6931471805599453, -r) + f * 2.3190468138462996e-17
    q = _polynomial_f64(r)
    return _scaled_f64(t, q + fma(low, q, low))


@device
def expm1_f64(x: Any) -> Any:
    y = 710.0 if x > 710.0 else x
    y = -50.0 if y < -50.0 else y
    t, q = _reduced_f64(y)
    n = to_bits_f64(t) - _ROUND_BITS_F64
    half = from_bits_f64((n - 1 + 1023) << 52)
    result = 2.0 * (fma(q, half, half - 0.5))
    small = fma(0.5 * y, y, y) if abs(x) < 1e-9 else result
    return small if x == x and x != 0.0 else x


@device
def tanh_f64(x: Any) -> Any:
    y = 2.0 * abs(x)
    y = y if y < 44.0 else 44.0
    t, q = _reduced_f64(y)
    scale = from_bits_f64((to_bits_f64(t) - _ROUND_BITS_F64 + 1023) << 52)
    e = fma(q, scale, scale - 1.0)
    bottom = e + 2.0
    inverse = reciprocal_f64(bottom)
    r = e * inverse
    # The remainder of the division by the sum, rounding left out.
    r = fma(fma(-r, bottom, e) - r * (e - (bottom - 2.0)), inverse, r)
    r = r if x == x else x
    return from_bits_f64(to_bits_f64(r) | (to_bits_f64(x) & -9223372036854775808))


@device
def expit_f64(x: Any) -> Any:
    small = exp_f64(-abs(x))
    top = 1.0 if x >= 0.0 else small
    bottom = 1.0 + small
    inverse = reciprocal_f64(bottom)
    r = top * inverse
    # The remainder of the division, and what the sum lacks.
    rest = fma(-r, bottom, top) - r * ((1.0 - bottom) + small)
    return fma(rest, inverse, r) if x == x else x


@device
def _reduced_f32(x: Any) -> Any:
    """Return n (as rounded by the addition) and exp(r) - 1."""
    t = fma(x, float32(1.4426950408889634), float32(_ROUND_F32))
    n = t - float32(_ROUND_F32)
    r = fma(n, float32(2.12194440e-4), fma(n, float32(-0.693359375), x))
    p = fma(float32(0.00019890990824673654), r, float32(0.0013933649996309251))
    p = fma(p, r, float32(0.0083333109254809))
    p = fma(p, r, float32(0.041666464925285904))
    p = fma(p, r, float32(0.16666666681623232))
    p = fma(p, r, float32(0.500000001346581))
    return t, fma(p * r, r, r)


@device
def exp_f32(x: Any) -> Any:
    y = float32(90.0) if x > float32(90.0) else x
    y = float32(-105.0) if y < float32(-105.0) else y
    t, q = _reduced_f32(y)
    return _scaled_f32(t, q)


@device
def tanh_f32(x: Any) -> Any:
    y = abs(x) + abs(x)
    y = y if y < float32(22.0) else float32(22.0)
    t, q = _reduced_f32(y)
    n = int32(to_bits_f32(t) - int32(_ROUND_BITS_F32))
    scale = from_bits_f32(int32(int32(n + int32(127)) << int32(23)))
    e = fma(q, scale, scale - float32(1.0))
    bottom = e + float32(2.0)
    inverse = reciprocal_f32(bottom)
    r = e * inverse
    # The remainder of the division by the sum, rounding left out.
    r = fma(fma(-r, bottom, e) - r * (e - (bottom - float32(2.0))), inverse, r)
    r = r if x == x else x
    return from_bits_f32(int32(to_bits_f32(r) | int32(to_bits_f32(x) & int32(-2147483648))))


@device
def expit_f32(x: Any) -> Any:
    small = exp_f32(-abs(x))
    one = float32(1.0)
    top = one if x >= float32(0.0) else small
    bottom = one + small
    inverse = reciprocal_f32(bottom)
    r = top * inverse
    rest = fma(-r, bottom, top) - r * ((one - bottom) + small)
    return fma(rest, inverse, r) if x == x else x


@device
def expm1_f32(x: Any) -> Any:
    y = float32(89.0) if x > float32(89.0) else x
    y = float32(-20.0) if y < float32(-20.0) else y
    t, q = _reduced_f32(y)
    n = int32(to_bits_f32(t) - int32(_ROUND_BITS_F32))
    half = from_bits_f32(int32(int32(n + int32(126)) << int32(23)))
    result = fma(q, half, half - float32(0.5))
    result = result + result
    small = fma(float32(0.5) * y, y, y) if abs(x) < float32(1e-4) else result
    return small if x == x and x != float32(0.0) else x


_power_of_two = polynomial(
    0.0001545336197353356,
    0.0013391093247266345,
    0.009618082183394121,
    0.05550356682386405,
    0.24022650761348438,
    0.693147188116349,
)


@device
def exp2_f32(x: Any) -> Any:
    y = float32(130.0) if x > float32(130.0) else x
    y = float32(-155.0) if y < float32(-155.0) else y
    t = y + float32(_ROUND_F32)
    f = y - (t - float32(_ROUND_F32))
    return _scaled_f32(t, _power_of_two(f) * f)
