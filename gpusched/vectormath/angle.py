"""arctan, arctan2 and hypot.

Nothing is divided by zero, not even where the quotient is not used.

The smaller of the two numbers divided by the larger is in [0, 1]; there
``atan(a) = a P(a**2)``, with P interpolating at the Chebyshev nodes of [0, 1]: relative errors
1.5e-19 (float64) and 1.2e-11 (float32).
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
    nonzero,
    polynomial,
    to_bits_f32,
    to_bits_f64,
    with_sign_of,
    with_sign_of_f32,
)


@device
def _polynomial_f64(a: Any) -> Any:
    """Return atan(a) - a for a in [0, 1]."""
    z = a * a
    p = fma(5.423577712204974e-06, z, -6.81501430177686e-05)
    p = fma(p, z, 0.00040788678988090015)
    p = fma(p, z, -0.0015537533402612332)
    p = fma(p, z, 0.004255114826480494)
    p = fma(p, z, -0.00899743399427727)
    p = fma(p, z, 0.015464694610323185)
    p = fma(p, z, -0.022566714208211488)
    p = fma(p, z, 0.029121244608854832)
    p = fma(p, z, -0.03455686749628989)
    p = fma(p, z, 0.03905116247694501)
    p = fma(p, z, -0.04318126899721664)
    p = fma(p, z, 0.04754388759047033)
    p = fma(p, z, -0.05261641609130929)
    p = fma(p, z, 0.058821133510041305)
    p = fma(p, z, -0.06666637679954038)
    p = fma(p, z, 0.07692305086458488)
    p = fma(p, z, -0.09090908923813586)
    p = fma(p, z, 0.11111111103899986)
    p = fma(p, z, -0.14285714285522452)
    p = fma(p, z, 0.1999999999999728)
    p = fma(p, z, -0.3333333333333332)
    return p * z * a


_tail_f32 = polynomial(
    0.00041922786011272897,
    -0.0031954252407363944,
    0.011427633277375594,
    -0.02600599597760862,
    0.04364658944281667,
    -0.06022196387937433,
    0.07495262378099696,
    -0.09049179093720577,
    0.11105306732424464,
    -0.1428522560816021,
    0.19999978336217084,
    -0.3333333295165722,
)


@device
def _polynomial_f32(a: Any) -> Any:
    """Return atan(a) - a for a in [0, 1]."""
    z = a * a
    return _tail_f32(z) * z * a


@device
def arctan_f64(x: Any) -> Any:
    size = abs(x)
    large = size > 1.0
    a = 1.0 / nonzero(size) if large else size
    tail = _polynomial_f64(a)
    angle = HALF_PI - (a + (tail - HALF_PI_LOW)) if large else a + tail
    return with_sign_of(angle, x) if x == x else x


@device
def arctan2_f64(y: Any, x: Any) -> Any:
    across, up = abs(x), abs(y)
    steep = up > across
    top = across if steep else up
    bottom = up if steep else across
    a = top / nonzero(bottom)
    a = 1.0 if top == inf else a
    tail = _polynomial_f64(a)
    angle = HALF_PI - (a + (tail - HALF_PI_LOW)) if steep else a + tail
    behind = to_bits_f64(x) < 0
    angle = (PI - (angle - PI_LOW)) if behind else angle
    angle = with_sign_of(angle, y)
    return y if y != y else (x if x != x else angle)


@device
def _behind_f32(angle: Any, tail: Any) -> Any:
    """Return pi/2 - (angle + tail)."""
    return float32(HALF_PI) - (angle + (tail - float32(HALF_PI_LOW_F32)))


@device
def arctan_f32(x: Any) -> Any:
    size = abs(x)
    large = size > float32(1.0)
    a = float32(1.0) / nonzero(size) if large else size
    tail = _polynomial_f32(a)
    angle = _behind_f32(a, tail) if large else a + tail
    return with_sign_of_f32(angle, x) if x == x else x


@device
def arctan2_f32(y: Any, x: Any) -> Any:
    across, up = abs(x), abs(y)
    steep = up > across
    top = across if steep else up
    bottom = up if steep else across
    a = top / nonzero(bottom)
    a = float32(1.0) if top == float32(inf) else a
    tail = _polynomial_f32(a)
    angle = _behind_f32(a, tail) if steep else a + tail
    behind = to_bits_f32(x) < int32(0)
    angle = float32(PI) - (angle - float32(PI_LOW_F32)) if behind else angle
    return y if y != y else (x if x != x else with_sign_of_f32(angle, y))


@device
def hypot_f32(x: Any, y: Any) -> Any:
    a, b = float64(x), float64(y)
    return float32(sqrt(a * a + b * b)) if abs(a) != inf and abs(b) != inf else float32(inf)


@device
def hypot_f64(x: Any, y: Any) -> Any:
    a, b = abs(x), abs(y)
    large = a if a > b else b
    # Powers of two that bring the squares of the largest and smallest numbers into range.
    scale = 1.0
    scale = 2.0**-600 if large > 2.0**500 else scale
    scale = 2.0**600 if large < 2.0**-500 else scale
    back = 1.0
    back = 2.0**600 if large > 2.0**500 else back
    back = 2.0**-600 if large < 2.0**-500 else back
    p, q = a * scale, b * scale
    square = p * p
    rest = fma(p, p, -square)
    other = q * q
    rest = rest + fma(q, q, -other)
    total = square + other
    rest = rest + ((square - total) + other if square >= other else (other - total) + square)
    root = sqrt(total)
    # One Newton step with the exact remainder.
    remainder = fma(-root, root, total) + rest
    root = root + remainder / (2.0 * nonzero(root))
    result = root * back
    return inf if a == inf or b == inf else result
