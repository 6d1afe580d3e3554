"""arcsin and arccos, and the cube root.

``asin a = a + a z R(z)`` with ``z = a**2`` up to 1/2; above, ``pi/2 - 2 asin(sqrt((1 - a) / 2))``
(FreeBSD's msun, ``e_asin.c``; Sun Microsystems, 1993).  R interpolates at the Chebyshev nodes of
[0, 1/4]: errors 2.1e-19 (float64) and 8.5e-10 (float32).

The cube root of ``2**(3j) v`` is ``2**j v y**2``, where y is the inverse cube root: a polynomial of
degree 5 (error 6.7e-6) and one step of third order with ``h = 1 - v y**3``; the last step of
float64 has the exact remainder.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from numba import float32, float64, int32

from gpusched.vectormath.bits import (
    HALF_PI,
    HALF_PI_LOW,
    HALF_PI_LOW_F32,
    PI,
    PI_LOW,
    PI_LOW_F32,
    device,
    fma,
    from_bits_f32,
    from_bits_f64,
    polynomial,
    to_bits_f32,
    to_bits_f64,
    with_sign_of,
)
from gpusched.vectormath.exponential import _ROUND_BITS_F64, _ROUND_F64

_arcsine_f64 = polynomial(
    0.029612011264955142,
    -0.019241671746743075,
    0.019554513336123406,
    0.003044879909455666,
    0.009319560794767449,
    0.00962184297010028,
    0.011566459612121669,
    0.01396378001220357,
    0.017352816540325496,
    0.02237215744350722,
    0.03038194447553234,
    0.044642857142551895,
    0.07500000000000118,
    0.16666666666666666,
)
_arcsine_f32 = polynomial(
    0.03369084720283013,
    0.017149238357677246,
    0.03110066273549457,
    0.04459940152851218,
    0.07500094543497424,
    0.16666666337430908,
)
_inverse_root = polynomial(
    -0.6657091857990677,
    3.0691588960396916,
    -5.911692305979198,
    6.184446550538378,
    -3.915903686176445,
    2.239695086865316,
)


@device
def _halved(a: Any) -> Any:
    """Return whether the angle is halved, and the sine of what is left, squared and as it is."""
    large = a > 0.5
    z = fma(-0.5, a, 0.5) if large else a * a
    return large, z, sqrt(z) if large else a


@device
def _half_angle_f64(s: Any, z: Any) -> Any:
    """Return what is added to s, the rounded root of z, for the angle."""
    # Divided by 1 where s is 0: LLVM divides all lanes, whatever a branch says.
    lost = fma(-s, s, z) / (s + s if s > 0.0 else 1.0)
    return fma(s * z, _arcsine_f64(z), lost)


@device
def arcsin_f64(x: Any) -> Any:
    large, z, s = _halved(abs(x))
    twice = s + s
    most = HALF_PI - twice
    rest = HALF_PI_LOW - 2.0 * _half_angle_f64(s, z)
    angle = most + (((HALF_PI - most) - twice) + rest)
    return with_sign_of(angle if large else fma(s * z, _arcsine_f64(z), s), x)


@device
def arccos_f64(x: Any) -> Any:
    large, z, s = _halved(abs(x))
    rest = _half_angle_f64(s, z) if large else s * z * _arcsine_f64(z)
    negative = x < 0.0
    rest = -rest if negative else rest
    s = -s if negative else s
    start = (PI if negative else 0.0) if large else HALF_PI
    start_low = (PI_LOW if negative else 0.0) if large else HALF_PI_LOW
    taken = -(s + s) if large else s
    change = -2.0 * rest if large else rest
    most = start - taken
    return most + (((start - most) - taken) + (start_low - change))


@device
def _halved_f32(a: Any) -> Any:
    half = float32(0.5)
    large = a > half
    z = fma(-half, a, half) if large else a * a
    return large, z, sqrt(z) if large else a


@device
def _half_angle_f32(s: Any, z: Any) -> Any:
    lost = fma(-s, s, z) / (s + s if s > float32(0.0) else float32(1.0))
    return fma(s * z, _arcsine_f32(z), lost)


@device
def arcsin_f32(x: Any) -> Any:
    large, z, s = _halved_f32(abs(x))
    twice = s + s
    most = float32(HALF_PI) - twice
    rest = _half_angle_f32(s, z)
    rest = float32(HALF_PI_LOW_F32) - (rest + rest)
    angle = most + (((float32(HALF_PI) - most) - twice) + rest)
    angle = angle if large else fma(s * z, _arcsine_f32(z), s)
    bits = int32(to_bits_f32(angle) & int32(2147483647))
    return from_bits_f32(int32(bits | int32(to_bits_f32(x) & int32(-2147483648))))


@device
def arccos_f32(x: Any) -> Any:
    large, z, s = _halved_f32(abs(x))
    zero = float32(0.0)
    negative = x < zero
    rest = _half_angle_f32(s, z) if large else s * z * _arcsine_f32(z)
    rest = -rest if negative else rest
    s = -s if negative else s
    start = (float32(PI) if negative else zero) if large else float32(HALF_PI)
    start_low = (float32(PI_LOW_F32) if negative else zero) if large else float32(HALF_PI_LOW_F32)
    taken = -(s + s) if large else s
    change = -(rest + rest) if large else rest
    most = start - taken
    return most + (((start - most) - taken) + (start_low - change))


@device
def _root_parts(a: Any) -> Any:
    """Return (as rounded by the addition) j, then v, and its inverse cube root to 1e-5."""
    bits = to_bits_f64(a)
    e = (bits >> 52) - 1022
    m = from_bits_f64((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000)
    t = fma(float64(e), 0.3333333333333333, _ROUND_F64)
    j = to_bits_f64(t) - _ROUND_BITS_F64
    rest = e - 3 * j
    v = 2.0 * m if rest > 0 else (0.5 * m if rest < 0 else m)
    # The inverse cube roots of 2 and 1/2.
    factor = 0.7937005259840998 if rest > 0 else (1.2599210498948732 if rest < 0 else 1.0)
    return t, v, _inverse_root(m) * factor


@device
def _inverse_root_of(v: Any, y: Any) -> Any:
    h = fma(-v * y, y * y, 1.0)
    return fma(y * h, fma(h, 0.2222222222222222, 0.3333333333333333), y)


@device
def cbrt_f64(x: Any) -> Any:
    a = abs(x)
    tiny = a < 2.2250738585072014e-308
    t, v, y = _root_parts(a * 18014398509481984.0 if tiny else a)
    y = _inverse_root_of(v, y)
    root = v * y * y
    square = root * root
    remainder = fma(square, root, -v) + fma(root, root, -square) * root
    root = fma(remainder * (y * y), -0.3333333333333333, root)
    j = to_bits_f64(t) - _ROUND_BITS_F64
    scale = from_bits_f64(((j - 18 if tiny else j) + 1023) << 52)
    root = root * scale
    return with_sign_of(root, x) if a > 0.0 and a < inf else x + x


@device
def cbrt_f32(x: Any) -> Any:
    wide = float64(x)
    a = abs(wide)
    t, v, y = _root_parts(a)
    y = _inverse_root_of(v, y)
    scale = from_bits_f64((to_bits_f64(t) - _ROUND_BITS_F64 + 1023) << 52)
    root = with_sign_of(v * y * y * scale, wide)
    return float32(root if a > 0.0 and a < inf else wide + wide)
