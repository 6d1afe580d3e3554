"""sin, cos and tan.

``x = n pi/2 + r`` with ``|r| <= pi/4``: pi/2 is the sum of three numbers, the products with which
are subtracted by fused multiply-adds (Cody and Waite, 1980).  The first of these is exact, so that
r is as exact as its dtype allows up to `LIMIT_F32` and `LIMIT_F64`; beyond, the C library reduces.
sin and cos of r are polynomials through the Chebyshev nodes of [0, (pi/4)**2] in ``z = r**2``:
``r + r z S(z)`` and ``1 - z/2 + z**2 C(z)``, with errors below 2e-17 (float64) and 2e-8 (float32).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int32, int64

from gpusched.vectormath.bits import (
    device,
    fma,
    from_bits_f32,
    from_bits_f64,
    polynomial,
    to_bits_f32,
    to_bits_f64,
)
from gpusched.vectormath.rarely import rarely

LIMIT_F32 = 1e5
LIMIT_F64 = 2.0**45
"""Numbers below these are reduced here."""

_sine_f64 = polynomial(
    -7.586691094197958e-13,
    1.6058531516797758e-10,
    -2.5052106231802837e-08,
    2.7557319219337312e-06,
    -0.00019841269841265063,
    0.008333333333333331,
    -0.16666666666666666,
)
_cosine_f64 = polynomial(
    -1.1382623647474604e-11,
    2.087614614655861e-09,
    -2.7557317271145144e-07,
    2.480158729876456e-05,
    -0.0013888888888887398,
    0.041666666666666664,
)
_sine_f32 = polynomial(-0.00019587865702101875, 0.008332748154085032, -0.16666664661714697)
_cosine_f32 = polynomial(2.4547916853691016e-05, -0.0013888302919113633, 0.041666664658901405)


def _functions(
    real: Any, integer: Any, bits: tuple[Any, Any], rounding: float, parts: list[float],
    polynomials: tuple[Any, Any], limit: float, sign: int
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return sin, cos and tan of one dtype; `bits` convert to bits and back."""
    to_bits, from_bits = bits
    sine, cosine = polynomials
    round_up, per_turn, half, one, top = map(real, (rounding, 2 / np.pi, 0.5, 1, limit))
    first, second, third = map(real, parts)
    numpy_integer = np.int64 if real is np.float64 else np.int32
    n_one, n_two, sign_bit = map(numpy_integer, (1, 2, sign))
    to_sign = numpy_integer(62 if real is np.float64 else 30)
    sin_of_large, cos_of_large, tan_of_large = (rarely(f, limit) for f in ("sin", "cos", "tan"))

    @device
    def quarter(a: Any) -> Any:
        """Return n (in the lowest bits of a number's) and r."""
        t = fma(a, per_turn, round_up)
        n = t - round_up
        return to_bits(t), fma(-n, third, fma(-n, second, fma(-n, first, a)))

    @device
    def sin_of_quarter(r: Any, z: Any) -> Any:
        return fma(r * z, sine(z), r)

    @device
    def cos_of_quarter(z: Any) -> Any:
        h = half * z
        w = one - h
        return w + fma(z * z, cosine(z), (one - w) - h)

    @device
    def sin(x: Any) -> Any:
        a = abs(x)
        n, r = quarter(a)
        z = r * r
        y = cos_of_quarter(z) if n & n_one else sin_of_quarter(r, z)
        flip = integer((n & n_two) << to_sign) ^ (to_bits(x) & sign_bit)
        return sin_of_large(x) if a >= top else from_bits(integer(to_bits(y) ^ flip))

    @device
    def cos(x: Any) -> Any:
        a = abs(x)
        n, r = quarter(a)
        z = r * r
        y = sin_of_quarter(r, z) if n & n_one else cos_of_quarter(z)
        flip = integer(((n + n_one) & n_two) << to_sign)
        return cos_of_large(x) if a >= top else from_bits(integer(to_bits(y) ^ flip))

    @device
    def tan(x: Any) -> Any:
        a = abs(x)
        t = fma(a, per_turn, round_up)
        n = t - round_up
        # r in two parts: what the subtractions lose is found by Knuth's two-sum.
        most = fma(-n, first, a)
        p = n * second
        r = most - p
        lost = r - most
        tail = (most - (r - lost)) - (p + lost)
        tail = fma(-n, third, tail - fma(n, second, -p))
        z = r * r
        h = half * z
        w = one - h
        c_rest = fma(z * z, cosine(z), (one - w) - h) - r * tail
        c = w + c_rest
        s_rest = fma(r * z, sine(z), tail * w)
        s = r + s_rest
        s_low, c_low = (r - s) + s_rest, (w - c) + c_rest
        odd = to_bits(t) & n_one
        top_of, top_low = (-c, -c_low) if odd else (s, s_low)
        bottom, bottom_low = (s, s_low) if odd else (c, c_low)
        inverse = one / bottom
        q = top_of * inverse
        rest = fma(-q, bottom, top_of) + fma(-q, bottom_low, top_low)
        y = fma(rest, inverse, q)
        flip = to_bits(x) & sign_bit
        return tan_of_large(x) if a >= top else from_bits(integer(to_bits(y) ^ flip))

    return sin, cos, tan


sin_f64, cos_f64, tan_f64 = _functions(
    np.float64, int64, (to_bits_f64, from_bits_f64), 6755399441055744.0,
    [1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33],
    (_sine_f64, _cosine_f64), LIMIT_F64, -9223372036854775808,
)  # fmt: skip
sin_f32, cos_f32, tan_f32 = _functions(
    np.float32, int32, (to_bits_f32, from_bits_f32), 12582912.0,
    [1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15],
    (_sine_f32, _cosine_f32), LIMIT_F32, -2147483648,
)  # fmt: skip
