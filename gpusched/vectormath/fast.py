"""sin, cos, expit and tanh in fewer steps, where 4 units in the last place are exact enough.

``x = n pi + r`` with ``|r| <= pi/2`` has one polynomial where quarters of a turn have two:
``sin x`` is ``r (1 + z S(z))`` with ``z = r**2``, through the Chebyshev nodes of [0, (pi/2)**2],
with errors of 1.2e-18 (float64) and 2.5e-8 (float32), and of the other sign where n is odd.
``expit x = 1 / (1 + exp(-x))``.  tanh of float32 is ``x P(z) / Q(z)``: degrees 5 and 4, fitted to
``tanh(x) / x`` up to 9 by least squares with the weights of Lawson's iteration, errors 1.4e-9.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int32, int64

from gpusched.vectormath.avx512 import reciprocal_f32, reciprocal_f64
from gpusched.vectormath.bits import (
    device,
    fma,
    from_bits_f32,
    from_bits_f64,
    polynomial,
    to_bits_f32,
    to_bits_f64,
)
from gpusched.vectormath.exponential import exp_f32, exp_f64
from gpusched.vectormath.rarely import rarely
from gpusched.vectormath.trigonometric import LIMIT_F32, LIMIT_F64

_sine_f64 = polynomial(
    2.7314368769379893e-15,
    -7.643969663988074e-13,
    1.6058977292642743e-10,
    -2.505210761669045e-08,
    2.7557319219160833e-06,
    -0.00019841269841254966,
    0.008333333333333316,
    -0.16666666666666666,
)
_sine_f32 = polynomial(
    2.6347445557912756e-06, -0.00019822735835019672, 0.00833324210801853, -0.1666666596354223
)


def _functions(
    real: Any, integer: Any, bits: tuple[Any, Any], rounding: float, parts: list[float], sine: Any,
    limit: float
) -> tuple[Any, Any]:  # fmt: skip
    """Return sin and cos of one dtype; `bits` convert to bits and back, `parts` sum up to pi."""
    to_bits, from_bits = bits
    round_up, per_half_turn, half, one, top = map(real, (rounding, 1 / np.pi, 0.5, 1, limit))
    first, second, third = map(real, parts)
    to_sign = (np.int64 if real is np.float64 else np.int32)(63 if real is np.float64 else 31)
    sin_of_large, cos_of_large = rarely("sin", limit), rarely("cos", limit)

    @device
    def turned(x: Any, t: Any, n: Any) -> Any:
        # All parts of pi are positive, so that zeros keep their signs.
        r = fma(-n, third, fma(-n, second, fma(-n, first, x)))
        z = r * r
        y = r * fma(z, sine(z), one)
        return from_bits(integer(to_bits(y) ^ integer(to_bits(t) << to_sign)))

    @device
    def sin(x: Any) -> Any:
        t = fma(x, per_half_turn, round_up)
        y = turned(x, t, t - round_up)
        return sin_of_large(x) if abs(x) >= top else y

    @device
    def cos(x: Any) -> Any:
        a = abs(x)
        t = fma(a, per_half_turn, half) + round_up
        y = turned(a, t, (t - round_up) - half)
        return cos_of_large(x) if a >= top else y

    return sin, cos


sin_f64, cos_f64 = _functions(
    np.float64, int64, (to_bits_f64, from_bits_f64), 6755399441055744.0,
    [3.141592653589793, 1.224646799147353e-16, 2.1657133478438278e-32], _sine_f64, LIMIT_F64,
)  # fmt: skip
sin_f32, cos_f32 = _functions(
    np.float32, int32, (to_bits_f32, from_bits_f32), 12582912.0,
    [3.141592502593994, 1.5099578831723193e-07, 1.078060505991553e-14], _sine_f32, LIMIT_F32,
)  # fmt: skip


@device
def expit_f64(x: Any) -> Any:
    # What is below is less than the smallest normal number.
    y = -709.0 if x < -709.0 else x
    return reciprocal_f64(1.0 + exp_f64(-y))


@device
def expit_f32(x: Any) -> Any:
    y = float32(-88.0) if x < float32(-88.0) else x
    return reciprocal_f32(float32(1.0) + exp_f32(-y))


_above = polynomial(
    -1.2202228103399086e-11,
    3.0583343151820184e-08,
    2.8006764225008887e-05,
    0.0038682936393761723,
    0.13679887981554734,
    0.9999999987020229,
)
_below = polynomial(
    1.2873178817419533e-06,
    0.00039385707078884815,
    0.027245714385944038,
    0.4701322004701906,
    1.0,
)
_SATURATED = 9.0
"""Where tanh is 1 in float32."""


@device
def tanh_f32(x: Any) -> Any:
    y = float32(_SATURATED) if x > float32(_SATURATED) else x
    y = float32(-_SATURATED) if y < float32(-_SATURATED) else y
    z = y * y
    return y * _above(z) / _below(z)
